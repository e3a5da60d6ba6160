package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
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

// limitedClass is the StorageClass whose volumes are as small as their claims say: a disk of its own in memory each.
const limitedClass = "limited"

// provisioner serves claims of its StorageClasses with directories of this node, one per claim, grows a volume with its
// claim, and removes a directory with its claim. The controller manager does the binding. Everything is level-triggered: a
// failed pass is repeated by the informers' resync. With the name of its node it is one of several: it serves the claims
// that the scheduler has put there, and its volumes are of use to pods of that node only.
type provisioner struct {
	client    kubernetes.Interface
	directory string
	node      string
}

func newProvisioner() *cobra.Command {
	var kubeconfig, directory, node string
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
			return (&provisioner{client, directory, node}).run(command.Context())
		},
	}
	command.Flags().StringVar(&kubeconfig, "kubeconfig", "", "how to reach the API server")
	command.Flags().StringVar(&directory, "directory", "", "where the volumes' directories are made")
	command.Flags().StringVar(&node, "node", "", "the node whose claims are served; not given: there is no other one")
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
	if claim.Annotations["volume.kubernetes.io/storage-provisioner"] != provisionerName {
		return nil
	}
	if claim.Spec.VolumeName != "" {
		return p.grow(ctx, claim)
	}
	if claim.Annotations["volume.kubernetes.io/selected-node"] != p.node {
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
	if *claim.Spec.StorageClassName == limitedClass {
		if err := limit(path, claim, 0); err != nil {
			return err
		}
	}
	volume := &core.PersistentVolume{
		ObjectMeta: meta.ObjectMeta{Name: name, Annotations: map[string]string{"pv.kubernetes.io/provisioned-by": provisionerName}},
		Spec: core.PersistentVolumeSpec{
			Capacity:                      core.ResourceList{core.ResourceStorage: claim.Spec.Resources.Requests[core.ResourceStorage]},
			AccessModes:                   claim.Spec.AccessModes,
			PersistentVolumeReclaimPolicy: core.PersistentVolumeReclaimDelete,
			StorageClassName:              *claim.Spec.StorageClassName,
			NodeAffinity:                  p.affinity(),
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

// affinity keeps the pods of a volume on this node, if there are others.
func (p *provisioner) affinity() *core.VolumeNodeAffinity {
	if p.node == "" {
		return nil
	}
	here := core.NodeSelectorRequirement{Key: core.LabelHostname, Operator: core.NodeSelectorOpIn, Values: []string{p.node}}
	terms := []core.NodeSelectorTerm{{MatchExpressions: []core.NodeSelectorRequirement{here}}}
	return &core.VolumeNodeAffinity{Required: &core.NodeSelector{NodeSelectorTerms: terms}}
}

// holds tells whether this provisioner has made the volume.
func (p *provisioner) holds(volume *core.PersistentVolume) bool {
	return volume.Annotations["pv.kubernetes.io/provisioned-by"] == provisionerName &&
		filepath.Dir(volume.Spec.HostPath.Path) == p.directory
}

// limit mounts a file system of the claimed size, or gives the mounted one that size.
func limit(path string, claim *core.PersistentVolumeClaim, flags uintptr) error {
	var stat syscall.Statfs_t
	if err := syscall.Statfs(path, &stat); err != nil {
		return err
	}
	if mounted := stat.Type == 0x01021994; flags == 0 && mounted { // TMPFS_MAGIC: an earlier pass has done it
		return nil
	}
	size := claim.Spec.Resources.Requests[core.ResourceStorage]
	return syscall.Mount("tmpfs", path, "tmpfs", flags, fmt.Sprintf("size=%d,mode=0777", size.Value()))
}

// grow gives a bound volume the size that its claim asks for, and says so in the claim, as a CSI driver's resizer does.
func (p *provisioner) grow(ctx context.Context, claim *core.PersistentVolumeClaim) error {
	asked, has := claim.Spec.Resources.Requests[core.ResourceStorage], claim.Status.Capacity[core.ResourceStorage]
	if claim.Status.Phase != core.ClaimBound || asked.Cmp(has) <= 0 {
		return nil
	}
	volume, err := p.client.CoreV1().PersistentVolumes().Get(ctx, claim.Spec.VolumeName, meta.GetOptions{})
	if err != nil || !p.holds(volume) {
		return err
	}
	if *claim.Spec.StorageClassName == limitedClass {
		if err := limit(volume.Spec.HostPath.Path, claim, syscall.MS_REMOUNT); err != nil {
			return err
		}
	}
	volume.Spec.Capacity = core.ResourceList{core.ResourceStorage: asked}
	if _, err := p.client.CoreV1().PersistentVolumes().Update(ctx, volume, meta.UpdateOptions{}); err != nil {
		return err
	}
	grown := claim.DeepCopy()
	grown.Status.Capacity = core.ResourceList{core.ResourceStorage: asked}
	_, err = p.client.CoreV1().PersistentVolumeClaims(claim.Namespace).UpdateStatus(ctx, grown, meta.UpdateOptions{})
	return err
}

// reclaim removes a volume of ours, directory first, once its claim is gone.
func (p *provisioner) reclaim(ctx context.Context, volume *core.PersistentVolume) error {
	if volume.Status.Phase != core.VolumeReleased || !p.holds(volume) {
		return nil
	}
	if volume.Spec.StorageClassName == limitedClass {
		if err := syscall.Unmount(volume.Spec.HostPath.Path, syscall.MNT_DETACH); err != nil && err != syscall.EINVAL {
			return err // EINVAL: an earlier pass has done it
		}
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
