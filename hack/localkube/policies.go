package main

import (
	"context"
	"os/signal"
	"sync"
	"syscall"

	"github.com/cloudnativelabs/kube-router/v2/pkg/controllers/netpol"
	"github.com/cloudnativelabs/kube-router/v2/pkg/healthcheck"
	"github.com/cloudnativelabs/kube-router/v2/pkg/options"
	"github.com/spf13/cobra"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"
)

// newPolicies makes the command that enforces NetworkPolicies for the pods of one node, until it is told to end: then
// everything is open again. The work is done by kube-router's controller, with iptables and ipset.
func newPolicies() *cobra.Command {
	config := options.NewKubeRouterConfig()
	config.EnableIPv4 = true
	command := &cobra.Command{
		Use:   "network-policies",
		Short: "Enforce NetworkPolicies for the pods of this node",
		RunE:  func(*cobra.Command, []string) error { return enforce(config) },
	}
	command.Flags().StringVar(&config.Kubeconfig, "kubeconfig", "", "how to reach the API server")
	command.Flags().StringVar(&config.HostnameOverride, "node", "", "the node's name")
	return command
}

// enforce does for this one controller what kube-router's main program does for all of its controllers.
func enforce(config *options.KubeRouterConfig) error {
	access, err := clientcmd.BuildConfigFromFlags("", config.Kubeconfig)
	if err != nil {
		return err
	}
	client, err := kubernetes.NewForConfig(access)
	if err != nil {
		return err
	}
	ending, _ := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	factory := informers.NewSharedInformerFactory(client, 0)
	pods := factory.Core().V1().Pods().Informer()
	namespaces := factory.Core().V1().Namespaces().Informer()
	policies := factory.Networking().V1().NetworkPolicies().Informer()
	factory.Start(ending.Done())
	factory.WaitForCacheSync(ending.Done())
	iptables, ipsets, err := netpol.NewIPTablesHandlers(config)
	if err != nil {
		return err
	}
	controller, err := netpol.NewNetworkPolicyController(
		client, config, pods, policies, namespaces, &sync.Mutex{}, iptables, ipsets)
	if err != nil {
		return err
	}
	for informer, handler := range map[cache.SharedIndexInformer]cache.ResourceEventHandler{
		pods: controller.PodEventHandler, namespaces: controller.NamespaceEventHandler, policies: controller.NetworkPolicyEventHandler,
	} {
		if _, err := informer.AddEventHandler(handler); err != nil {
			return err
		}
	}
	beats := make(chan *healthcheck.ControllerHeartbeat)
	go func() {
		for range beats { // nobody asks how it is, and the controller waits until each is taken
		}
	}()
	var running sync.WaitGroup
	running.Add(1)
	go controller.Run(beats, ending.Done(), &running)
	running.Wait()
	controller.Cleanup()
	return nil
}
