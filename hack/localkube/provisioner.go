package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"
	core "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/errors"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"
)

// provisionerName is what the StorageClass names; the controller manager leaves claims of that class to us.
const provisionerName = "muster.dev/localkube-directory"

// provisioner serves claims of its StorageClass with directories of this node, one per claim, and removes a directory with
// its claim. The controller manager does the binding. Everything is level-triggered: a failed pass is repeated by the
// informers' resync.
type provisioner struct {
	client    kubernetes.Interface
	directory string
}

func newProvisioner() *cobra.Command {
	var kubeconfig, directory string
	command := &cobra.Command{
		Use:   "provisioner",
		Short: "Give each PersistentVolumeClaim a directory of this node",
		RunE: func(command *cobra.Command, _ []string) error {
			config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
			if err != nil {
				return err
			}
			client, err := kubernetes.NewForConfig(config)
			if err != nil {
				return err
			}
			return (&provisioner{client, directory}).run(command.Context())
		},
	}
	command.Flags().StringVar(&kubeconfig, "kubeconfig", "", "how to reach the API server")
	command.Flags().StringVar(&directory, "directory", "", "where the volumes' directories are made")
	return command
}

func (p *provisioner) run(ctx context.Context) error {
	if ctx == nil {
		ctx = context.Background()
	}
	factory := informers.NewSharedInformerFactory(p.client, 5*time.Second)
	claims := factory.Core().V1().PersistentVolumeClaims().Informer()
	volumes := factory.Core().V1().PersistentVolumes().Informer()
	if err := handle(claims, func(object any) error { return p.provision(ctx, object.(*core.PersistentVolumeClaim)) }); err != nil {
		return err
	}
	if err := handle(volumes, func(object any) error { return p.reclaim(ctx, object.(*core.PersistentVolume)) }); err != nil {
		return err
	}
	factory.Start(ctx.Done())
	<-ctx.Done()
	return nil
}

// handle calls do with each object that was added, changed or resynced.
func handle(informer cache.SharedIndexInformer, do func(object any) error) error {
	logged := func(object any) {
		if err := do(object); err != nil {
			klog.ErrorS(err, "Will be tried again")
		}
	}
	_, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    logged,
		UpdateFunc: func(_, object any) { logged(object) },
	})
	return err
}

// provision makes directory and volume for an unbound claim that the controller manager has put on us.
func (p *provisioner) provision(ctx context.Context, claim *core.PersistentVolumeClaim) error {
	if claim.Spec.VolumeName != "" || claim.Annotations["volume.kubernetes.io/storage-provisioner"] != provisionerName {
		return nil
	}
	name := "pvc-" + string(claim.UID)
	path := filepath.Join(p.directory, name)
	if err := os.MkdirAll(path, 0o777); err != nil {
		return err
	}
	if err := os.Chmod(path, 0o777); err != nil { // pods run as any user, and a hostPath knows no fsGroup
		return err
	}
	volume := &core.PersistentVolume{
		ObjectMeta: meta.ObjectMeta{Name: name, Annotations: map[string]string{"pv.kubernetes.io/provisioned-by": provisionerName}},
		Spec: core.PersistentVolumeSpec{
			Capacity:                      core.ResourceList{core.ResourceStorage: claim.Spec.Resources.Requests[core.ResourceStorage]},
			AccessModes:                   claim.Spec.AccessModes,
			PersistentVolumeReclaimPolicy: core.PersistentVolumeReclaimDelete,
			StorageClassName:              *claim.Spec.StorageClassName,
			PersistentVolumeSource:        core.PersistentVolumeSource{HostPath: &core.HostPathVolumeSource{Path: path}},
			ClaimRef: &core.ObjectReference{
				APIVersion: "v1", Kind: "PersistentVolumeClaim",
				Namespace: claim.Namespace, Name: claim.Name, UID: claim.UID,
			},
		},
	}
	if _, err := p.client.CoreV1().PersistentVolumes().Create(ctx, volume, meta.CreateOptions{}); err != nil && !errors.IsAlreadyExists(err) {
		return fmt.Errorf("volume for claim %s/%s: %w", claim.Namespace, claim.Name, err)
	}
	return nil
}

// reclaim removes a volume of ours, directory first, once its claim is gone.
func (p *provisioner) reclaim(ctx context.Context, volume *core.PersistentVolume) error {
	if volume.Status.Phase != core.VolumeReleased || volume.Annotations["pv.kubernetes.io/provisioned-by"] != provisionerName {
		return nil
	}
	if err := os.RemoveAll(filepath.Join(p.directory, volume.Name)); err != nil {
		return err
	}
	err := p.client.CoreV1().PersistentVolumes().Delete(ctx, volume.Name, meta.DeleteOptions{})
	if err != nil && !errors.IsNotFound(err) {
		return fmt.Errorf("volume %s: %w", volume.Name, err)
	}
	return nil
}
