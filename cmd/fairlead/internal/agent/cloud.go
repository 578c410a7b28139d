package agent

import (
	"log/slog"

	"github.com/fairlead/fairlead/advertise/cloud"
	"github.com/fairlead/fairlead/agent/config"
	"github.com/fairlead/fairlead/cmd/fairlead/internal/daemon"
	"github.com/fairlead/fairlead/controller"
	"github.com/fairlead/fairlead/controller/cloudroutes"
	"github.com/fairlead/fairlead/core/route"
	"github.com/fairlead/fairlead/reconciler"
	source "github.com/fairlead/fairlead/source/kube"
)

// openCloud makes a loop also advertise through a cloud, if configured.
func (a *agent) openCloud(loop *reconciler.Config) (err error) {
	r := a.config
	switch r.Agent.Cloud.Cloud {
	case "":
		return nil
	case config.CloudController:
		client, err := source.Connection(r.Kubeconfig)
		if err != nil {
			return err
		}
		namespace := controller.DefaultNamespace
		if r.BalancersID.Namespace != "" {
			namespace = r.BalancersID.Namespace
		}
		if a.cloud, err = cloudroutes.New(cloudroutes.Config{Client: client, Namespace: namespace, Node: r.Node, Log: slog.Default()}); err != nil {
			return err
		}
	default:
		provider, err := daemon.NewCloud(r.Agent.Cloud, r.Node)
		if err != nil {
			return err
		}
		a.cloud = cloud.NewAnnouncer(r.Node, cloud.Keeper{Provider: provider, Log: slog.Default()})
	}
	announceToo(loop, route.ModeCloud, a.cloud)
	return nil
}
