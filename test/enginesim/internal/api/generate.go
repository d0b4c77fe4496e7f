package api

import (
	"context"
	"errors"
	"strings"
	"sync"

	"hotseat.dev/hotseat/test/enginesim/internal/answers"
	"hotseat.dev/hotseat/test/enginesim/internal/engine"
)

// job is one answer to make.
type job struct {
	prompt       string
	promptTokens int
	seed         int64
	maxTokens    int
	stop         []string
	ignoreEOS    bool
}

// outcome is an answer as far as it has come.
type outcome struct {
	text   string
	tokens int
	finish string   // length, stop or abort; empty until the answer has ended
	stop   *string  // the stop string that ended it
	made   []string // the tokens
}

// nothing says that the answer ended before its first token, of which vLLM
// streams no chunk.
func (o outcome) nothing() bool { return o.finish == "abort" && o.tokens == 0 }

// emitter gets each piece of text as it may be shown; the last with o.finish.
type emitter func(i int, piece string, o outcome) error

// each makes the answers of jobs side by side, and hands one piece at a time to
// emit. The error is engine.ErrDead, the context's, or emit's.
func (s *Server) each(ctx context.Context, jobs []job, emit emitter) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	errs := make([]error, len(jobs))
	var wg sync.WaitGroup
	var mu sync.Mutex
	for i, j := range jobs {
		wg.Go(func() {
			errs[i] = s.generate(ctx, j, func(piece string, o outcome) error {
				mu.Lock()
				defer mu.Unlock()
				return emit(i, piece, o)
			})
		})
	}
	wg.Wait()
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// generate makes one answer token by token.
func (s *Server) generate(ctx context.Context, j job, emit func(string, outcome) error) error {
	req, err := s.opts.Engine.Begin()
	if err != nil {
		return err
	}
	defer req.End()
	var o outcome
	shown, hold := 0, max(longest(j.stop)-1, 0)
	for o.finish == "" {
		err := req.Step(ctx, s.opts.Settings.TokenTime)
		switch {
		case errors.Is(err, engine.ErrAborted):
			o.finish = "abort"
		case err != nil:
			return err
		default:
			s.extend(&o, j, req.Garbled())
		}
		end := len(o.text)
		if o.finish == "" {
			end = max(shown, end-hold) // it may be the beginning of a stop string
		}
		if err := emit(o.text[min(shown, end):end], o); err != nil {
			return err
		}
		shown = end
	}
	s.counts.add(j.promptTokens, o)
	return nil
}

// extend adds one token and sees whether the answer ends with it.
func (s *Server) extend(o *outcome, j job, garbled bool) {
	token := answers.Garbage
	if !garbled {
		token = answers.Token(s.opts.Names[0], j.prompt, j.seed, o.tokens)
	}
	o.text += token
	o.made = append(o.made, token)
	o.tokens++
	cut, found := firstStop(o.text, j.stop)
	switch {
	case found != nil:
		o.text, o.stop, o.finish = o.text[:cut], found, "stop"
	case o.tokens >= j.maxTokens:
		o.finish = "length"
	case o.tokens >= s.opts.Settings.Tokens && !j.ignoreEOS:
		o.finish = "stop"
	}
}

func longest(stop []string) int {
	n := 0
	for _, s := range stop {
		n = max(n, len(s))
	}
	return n
}

// firstStop finds the stop string that comes first in text.
func firstStop(text string, stop []string) (at int, found *string) {
	at = -1
	for i, s := range stop {
		if n := strings.Index(text, s); n >= 0 && s != "" && (at < 0 || n < at) {
			at, found = n, &stop[i]
		}
	}
	return at, found
}
