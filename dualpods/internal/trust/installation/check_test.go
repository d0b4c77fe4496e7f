package installation

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"hotseat.dev/hotseat/spec/v1alpha1"
)

// working is an installation that works.
func working() *installed {
	crd := apiextensionsv1.CustomResourceDefinition{ObjectMeta: metav1.ObjectMeta{Name: "launcherconfigs.hotseat.dev"}}
	crd.Spec.Versions = []apiextensionsv1.CustomResourceDefinitionVersion{{Name: "v1alpha1", Served: true, Storage: true}}
	served := crd.DeepCopy()
	served.Status.Conditions = []apiextensionsv1.CustomResourceDefinitionCondition{{Type: apiextensionsv1.Established, Status: apiextensionsv1.ConditionTrue}}
	config := v1alpha1.LauncherConfig{ObjectMeta: metav1.ObjectMeta{Namespace: "models", Name: "vllm", Generation: 2}}
	for _, kind := range []string{v1alpha1.ConditionAccepted, v1alpha1.ConditionAvailable} {
		config.Status.Conditions = append(config.Status.Conditions, metav1.Condition{Type: kind, Status: metav1.ConditionTrue, ObservedGeneration: 2})
	}
	controller := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Generation: 3}}
	controller.Status.ObservedGeneration = 3
	controller.Status.Conditions = []appsv1.DeploymentCondition{{Type: appsv1.DeploymentAvailable, Status: corev1.ConditionTrue}}
	return &installed{
		deployment: "hotseat-system/hotseat-controller", controller: controller, expected: []apiextensionsv1.CustomResourceDefinition{crd},
		served: map[string]*apiextensionsv1.CustomResourceDefinition{crd.Name: served}, configs: []v1alpha1.LauncherConfig{config},
	}
}

func TestAnInstallationIsSaidToWorkOrWhatIsWrongWithIt(t *testing.T) {
	require.NoError(t, working().wrong())
	for says, spoil := range map[string]func(*installed){
		"the controller's Deployment hotseat-system/hotseat-controller does not exist": func(i *installed) { i.controller = nil },
		"is not available: no replica": func(i *installed) {
			i.controller.Status.Conditions[0].Status, i.controller.Status.Conditions[0].Message = corev1.ConditionFalse, "no replica"
		},
		"is not available: its status does not say so yet":                        func(i *installed) { i.controller.Generation++ },
		"CustomResourceDefinition launcherconfigs.hotseat.dev does not exist":     func(i *installed) { clear(i.served) },
		"CustomResourceDefinition launcherconfigs.hotseat.dev is not established": func(i *installed) { i.served["launcherconfigs.hotseat.dev"].Status.Conditions = nil },
		"CustomResourceDefinition launcherconfigs.hotseat.dev is of another version than the controller": func(i *installed) {
			i.served["launcherconfigs.hotseat.dev"].Spec.Versions[0].AdditionalPrinterColumns = []apiextensionsv1.CustomResourceColumnDefinition{{Name: "x"}}
		},
		"the controller has not reconciled LauncherConfig models/vllm yet": func(i *installed) { i.configs[0].Generation++ },
		"LauncherConfig models/vllm: Accepted is False: a field is wrong": func(i *installed) {
			c := &i.configs[0].Status.Conditions[0]
			c.Status, c.Message = metav1.ConditionFalse, "a field is wrong"
		},
		"LauncherConfig models/vllm: Available is False: 1 of 2 launchers are ready": func(i *installed) {
			c := &i.configs[0].Status.Conditions[1]
			c.Status, c.Message = metav1.ConditionFalse, "1 of 2 launchers are ready"
		},
	} {
		i := working()
		spoil(i)
		assert.ErrorContains(t, i.wrong(), says)
	}
}
