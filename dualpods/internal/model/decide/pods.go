package decide

import (
	"cmp"
	"fmt"
)

// goesFirst is the pod-deletion-cost of Pods that are to go. Others have 0.
const goesFirst = -1

// entryDecision says what is to be done about an entry with the numbers that it has now.
func (p *pass) entryDecision(e *numbers) EntryDecision {
	if e.number() == 0 {
		p.mayAsk(e) // else the row says why not
	}
	d := EntryDecision{Name: e.Name, Row: cmp.Or(e.row, RowStays), Why: e.why, Record: e.record, Ready: e.ready, Waiting: e.hope}
	d.Asked = Asked{Replicas: e.number()}
	if e.racing() > 0 {
		d.Asked.Goal = e.goal
	}
	if p.Mode == Off {
		d.Asked = e.Asked
		d.Asked.Replicas = e.Replicas
	} else {
		d.Write = d.Asked != e.Asked || d.Asked.Replicas != e.Replicas
		if e.Replicas != e.Asked.Replicas {
			d.Foreign = fmt.Sprintf("the Deployment was scaled from %d to %d replicas by somebody else; it gets %d: edit the Model instead, or set spec.autoscaling.mode to Off", e.Asked.Replicas, e.Replicas, d.Asked.Replicas)
		}
	}
	p.decidePods(e, &d)
	return d
}

// decidePods says which Pods serve, and which go.
func (p *pass) decidePods(e *numbers, d *EntryDecision) {
	stay := make(map[*Pod]bool, len(e.alive))
	ready, hope := e.ready, e.hope
	for _, pod := range e.alive {
		switch {
		case pod.Ready && ready > 0:
			ready--
			stay[pod] = true
		case !pod.Ready && hope > 0:
			hope--
			stay[pod] = true
		}
	}
	unreadyStays := false
	for n := range e.Pods {
		pod := &e.Pods[n]
		switch {
		case pod.Ready && stay[pod]:
			if !pod.Serving {
				d.Serve = append(d.Serve, pod.Name)
			}
			continue
		case pod.Serving:
			d.Unserve = append(d.Unserve, pod.Name)
		}
		if stay[pod] {
			unreadyStays = true
		} else {
			d.Losing++
		}
	}
	p.choose(e, d, stay, unreadyStays)
}

// choose has the Deployment lose the Pods that are to go, if it is to have fewer now. Pods that stay lose
// the cost that an earlier choice has left.
func (p *pass) choose(e *numbers, d *EntryDecision, stay map[*Pod]bool, unreadyStays bool) {
	lower := d.Asked.Replicas < e.Replicas
	for _, pod := range e.alive {
		switch {
		case stay[pod] && pod.Cost == goesFirst:
			d.cost(pod, 0)
		case stay[pod] || !lower:
		default:
			if pod.Cost != goesFirst {
				d.cost(pod, goesFirst)
			}
			if unreadyStays && (pod.Ready || p.hasFailed(e, pod)) {
				d.Delete = append(d.Delete, pod.Name)
			}
		}
	}
}

func (d *EntryDecision) cost(pod *Pod, cost int) {
	if d.Costs == nil {
		d.Costs = map[string]int{}
	}
	d.Costs[pod.Name] = cost
}
