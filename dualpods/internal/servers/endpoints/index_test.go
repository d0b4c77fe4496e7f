package endpoints

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
)

// Each entry of a ModelServing has a Service, and each Pod that changes would have all of them read.
func TestServicesThatDoNotAskAreNotRead(t *testing.T) {
	read := -1
	others := []client.Object{service()}
	for n := range 5 {
		others = append(others, &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: llama.Namespace, Name: fmt.Sprintf("other-%d", n)}})
	}
	s := newSite(t, interceptor.Funcs{List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
		err := c.List(ctx, list, opts...)
		if services, ok := list.(*corev1.ServiceList); ok {
			read = len(services.Items)
		}
		return err
	}}, others...)
	s.Note(t.Context(), requester("a"), true)
	assert.Equal(t, 1, read)
}
