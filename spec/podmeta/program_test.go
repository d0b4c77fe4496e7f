package podmeta_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"hotseat.dev/hotseat/spec/podmeta"
)

// podWith makes a requester that has these containers.
func podWith(t *testing.T, spec string) *corev1.Pod {
	t.Helper()
	pod := &corev1.Pod{}
	require.NoError(t, yaml.UnmarshalStrict([]byte("{spec: "+spec+"}"), pod))
	pod.Annotations = map[string]string{"dual-pod.llm-d.ai/inference-server-config": "granite"}
	return pod
}

// What the parts of a requester look like.
const (
	gpu     = `resources: {limits: {nvidia.com/gpu: 2}}`
	waits   = `containers: [{name: inference-server}]`
	sidecar = `initContainers: [{name: first}, {name: requester, restartPolicy: Always, ` + gpu + `, ports: [{name: spi, containerPort: 8091}]}]`
)

func TestProgramIsReadFromEitherShape(t *testing.T) {
	for name, tt := range map[string]struct {
		spec        string
		name, field string
	}{
		"the container itself":               {`{containers: [{name: beside}, {name: inference-server, ports: [{name: spi, containerPort: 8091}], ` + gpu + `}]}`, "inference-server", "spec.containers[inference-server]"},
		"a sidecar":                          {`{` + sidecar + `, ` + waits + `}`, "requester", "spec.initContainers[requester]"},
		"an init container of the same name": {`{initContainers: [{name: requester}], containers: [{name: inference-server, ports: [{name: spi, containerPort: 8091}], ` + gpu + `}]}`, "inference-server", "spec.containers[inference-server]"},
	} {
		t.Run(name, func(t *testing.T) {
			pod := podWith(t, tt.spec)
			pod.Annotations["dual-pod.llm-d.ai/admin-port"] = "spi"
			program := podmeta.ProgramOf(pod)
			assert.Equal(t, []string{tt.name, tt.field}, []string{program.Name, program.Field})
			assert.Equal(t, tt.name, program.Container.Name)
			got, problems := podmeta.ReadRequester(pod)
			assert.Empty(t, problems)
			assert.Equal(t, []int{2, 8091}, []int{got.GPUs, int(got.AdminPort)})
			assert.Equal(t, tt.field+".volumeMounts", podmeta.NoTLS(pod).Field)
		})
	}
}

func TestStateOfTheProgramIsThatOfItsContainer(t *testing.T) {
	since := metav1.NewTime(time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC))
	var (
		running = corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: since}}
		ended   = corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{}}
		comes   = corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "PodInitializing"}}
	)
	for name, tt := range map[string]struct {
		init, main  *corev1.ContainerState // of the sidecar; of the container inference-server
		restarts    int32
		runs, ended bool
	}{
		"nothing is known":                      {nil, nil, 0, false, false},
		"only the sidecar runs":                 {&running, &comes, 0, true, false},
		"both run":                              {&running, &running, 0, true, false},
		"the sidecar has ended":                 {&ended, &running, 0, false, true},
		"the sidecar is started again":          {&comes, &running, 1, false, true},
		"the sidecar is started the first time": {&comes, &comes, 0, false, false},
		"only the container that waits ended":   {&running, &ended, 0, true, false},
	} {
		t.Run(name, func(t *testing.T) {
			pod := podWith(t, `{`+sidecar+`, `+waits+`}`)
			pod.Status.PodIP = "10.1.0.2"
			if tt.init != nil {
				pod.Status.InitContainerStatuses = []corev1.ContainerStatus{{Name: "first", State: ended}, {Name: "requester", State: *tt.init, RestartCount: tt.restarts}}
			}
			if tt.main != nil {
				pod.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "inference-server", State: *tt.main}}
			}
			program := podmeta.ProgramOf(pod)
			assert.Equal(t, []bool{tt.runs, tt.ended}, []bool{program.Runs(), program.Ended()})
			assert.Equal(t, tt.runs, program.Started().Equal(since.Time))
			pod.Status.PodIP = ""
			assert.False(t, podmeta.ProgramOf(pod).Runs(), "without an address")
			// The other shape reads the other list.
			pod.Spec.InitContainers = nil
			pod.Status.PodIP = "10.1.0.2"
			program = podmeta.ProgramOf(pod)
			assert.Equal(t, tt.main != nil && tt.main.Running != nil, program.Runs())
			assert.Equal(t, tt.main != nil && tt.main.Terminated != nil, program.Ended())
		})
	}
}

func TestShapeThatIsNeitherIsToldWithItsCure(t *testing.T) {
	const limits = ".resources.limits[nvidia.com/gpu]: "
	for name, tt := range map[string]struct{ spec, want string }{
		"GPUs in both": {
			`{` + sidecar + `, containers: [{name: inference-server, ` + gpu + `}]}`,
			"spec.containers[inference-server]" + limits + "is set although the init container requester, which runs the requester program, has GPUs too: remove it here",
		},
		"the GPUs at the container that waits": {
			`{initContainers: [{name: requester, restartPolicy: Always}], containers: [{name: inference-server, ` + gpu + `}]}`,
			"spec.containers[inference-server]" + limits + "should be at the init container requester, which runs the requester program: move it there",
		},
		"no GPUs in a sidecar": {
			`{initContainers: [{name: requester, restartPolicy: Always}], ` + waits + `}`,
			"spec.initContainers[requester]" + limits + "is not there: it says how many GPUs",
		},
		"an init container that ends, with the GPUs": {
			`{initContainers: [{name: requester, ` + gpu + `}], ` + waits + `}`,
			"spec.initContainers[requester].restartPolicy: is not Always: with Always, the init container runs the requester program while the container inference-server waits; without it, it ends before that container starts",
		},
		"nobody waits": {
			`{` + sidecar + `, containers: [{name: main}]}`,
			"spec.containers: none is named inference-server: the init container requester runs the requester program; add a container of that name, without a GPU, that only waits",
		},
		"neither": {
			`{containers: [{name: main, ` + gpu + `}]}`,
			"spec.containers: none is named inference-server: the container of that name runs the requester program and holds the GPUs, or it waits while an init container requester with restartPolicy: Always does so",
		},
		"the program as a container beside": {
			`{containers: [{name: inference-server}, {name: requester, ` + gpu + `}]}`,
			"spec.containers[inference-server]" + limits + "is not there, and the container requester has GPUs: move them to the container that runs the requester program, which is inference-server, or an init container requester with restartPolicy: Always",
		},
	} {
		t.Run(name, func(t *testing.T) {
			_, problems := podmeta.ReadRequester(podWith(t, tt.spec))
			require.Len(t, problems, 1, "%v", problems)
			assert.Contains(t, problems[0].String(), tt.want)
			assert.Equal(t, podmeta.Invalid, problems[0].Kind)
		})
	}
}
