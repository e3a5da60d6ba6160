// Command kube is a whole Kubernetes in one binary: `kube COMPONENT FLAGS`. It is compiled from the components' ordinary Go
// modules, so that a machine with Go and without Docker, package mirrors or a registry can run a real cluster for tests.
package main

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"go.etcd.io/etcd/server/v3/etcdmain"
	_ "k8s.io/client-go/plugin/pkg/client/auth"
	"k8s.io/component-base/cli"
	_ "k8s.io/component-base/logs/json/register"
	_ "k8s.io/component-base/metrics/prometheus/clientgo"
	_ "k8s.io/component-base/metrics/prometheus/version"
	kubectl "k8s.io/kubectl/pkg/cmd"
	kubectlutil "k8s.io/kubectl/pkg/cmd/util"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	controllers "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	proxy "k8s.io/kubernetes/cmd/kube-proxy/app"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"
	kubelet "k8s.io/kubernetes/cmd/kubelet/app"
)

// components maps the first argument to the program that it stands for. Each sees os.Args as if it had been started alone.
var components = map[string]func(){
	"etcd":                    func() { etcdmain.Main(os.Args) },
	"kube-apiserver":          serve(apiserver.NewAPIServerCommand),
	"kube-controller-manager": serve(controllers.NewControllerManagerCommand),
	"kube-scheduler":          serve(func() *cobra.Command { return scheduler.NewSchedulerCommand() }),
	"kube-proxy":              serve(proxy.NewProxyCommand),
	"kubelet":                 serve(newKubelet),
	"kubectl":                 runKubectl,
	"provisioner":             serve(newProvisioner),
	"network-policies":        serve(newPolicies),
}

func main() {
	// a link named as a component stands for it, as in `ln -s kube kubectl`
	run, known := components[filepath.Base(os.Args[0])]
	if !known && len(os.Args) > 1 {
		os.Args = os.Args[1:]
		run, known = components[os.Args[0]]
	}
	if !known {
		usage()
	}
	run()
}

func usage() {
	fmt.Fprintln(os.Stderr, "usage: kube COMPONENT [FLAGS]")
	fmt.Fprintln(os.Stderr, "components:", strings.Join(slices.Sorted(maps.Keys(components)), ", "))
	os.Exit(2)
}

// serve makes an entry of components from a cobra command. cli.Run sets up logs and exits with the command's code.
func serve(command func() *cobra.Command) func() {
	return func() { os.Exit(cli.Run(command())) }
}

// newKubelet makes its command, which takes a context from Kubernetes 1.34 on. Not that of SetupSignalContext: cli.Run installs
// the signal handler, and a second one panics.
func newKubelet() *cobra.Command {
	switch make := any(kubelet.NewKubeletCommand).(type) {
	case func(context.Context) *cobra.Command:
		return make(context.Background())
	case func() *cobra.Command:
		return make()
	default:
		panic("kubelet.NewKubeletCommand is of another kind")
	}
}

func runKubectl() {
	// as in kubectl's own main: errors are printed by CheckErr, which also knows the exit codes of `diff` and `wait`
	if err := cli.RunNoErrOutput(kubectl.NewDefaultKubectlCommand()); err != nil {
		kubectlutil.CheckErr(err)
	}
}
