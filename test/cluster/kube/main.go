// Kube is Kubernetes in one program: each component, etcd and kubectl are
// sub-commands of the names that they have elsewhere; called by the name of one
// of them the program is that one. gpu-plugin stands in for NVIDIA's device
// plugin.
//
// The test cluster runs it; it is a module of its own so that what Kubernetes
// requires stays out of the product's go.mod.
package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"go.etcd.io/etcd/server/v3/etcdmain"
	"k8s.io/component-base/cli"
	_ "k8s.io/component-base/logs/json/register"          // --logging-format=json
	_ "k8s.io/component-base/metrics/prometheus/clientgo" // metrics of the clients
	_ "k8s.io/component-base/metrics/prometheus/version"  // kubernetes_build_info
	"k8s.io/kubectl/pkg/cmd"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	controllermanager "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	proxy "k8s.io/kubernetes/cmd/kube-proxy/app"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"
	kubelet "k8s.io/kubernetes/cmd/kubelet/app"
)

// components make the command of each component; a command is made only when
// it is asked for, since making one registers its flags globally.
var components = map[string]func() *cobra.Command{
	"kube-apiserver":          apiserver.NewAPIServerCommand,
	"kube-controller-manager": controllermanager.NewControllerManagerCommand,
	"kube-scheduler":          func() *cobra.Command { return scheduler.NewSchedulerCommand() },
	"kube-proxy":              proxy.NewProxyCommand,
	"kubelet":                 newKubeletCommand,
	"kubectl":                 cmd.NewDefaultKubectlCommand,
	"gpu-plugin":              newGPUPluginCommand,
}

// newKubeletCommand makes the kubelet's command, which takes a context since Kubernetes 1.34.
func newKubeletCommand() *cobra.Command {
	switch command := any(kubelet.NewKubeletCommand).(type) {
	case func(context.Context) *cobra.Command:
		return command(context.Background())
	case func() *cobra.Command:
		return command()
	default:
		panic(fmt.Sprintf("this release of Kubernetes makes the kubelet's command by a %T", command))
	}
}

func main() {
	if _, ok := components[filepath.Base(os.Args[0])]; !ok {
		if len(os.Args) < 2 {
			usage()
		}
		os.Args = os.Args[1:] // as if the component had been called by its own name
	}
	name := filepath.Base(os.Args[0])
	if name == "etcd" {
		etcdmain.Main(os.Args)
		return
	}
	component, ok := components[name]
	if !ok {
		usage()
	}
	os.Exit(cli.Run(component()))
}

func usage() {
	names := []string{"etcd"}
	for name := range components {
		names = append(names, name)
	}
	slices.Sort(names)
	fmt.Fprintf(os.Stderr, "usage: kube COMPONENT [FLAG ...], where COMPONENT is one of %s\n", strings.Join(names, ", "))
	os.Exit(2)
}
