package controller

import (
	"os"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/reference"

	"github.com/fairlead/fairlead/internal/kubeclient"
)

// component is the reporting controller of Events and the manager of fields.
const component = "fairlead-controller"

// recordEvent creates an Event about an object, unless there have been too many.
func (k *Controller) recordEvent(about runtime.Object, warn bool, reason, action, message string) {
	to, err := reference.GetReference(k.scheme, about)
	if err != nil {
		k.Log.Error("failed to create an Event: no object", "reason", reason, "error", err)
		return
	}
	k.events.Record(kubeclient.Event{
		About: *to, Controller: component, Instance: instance(), Reason: reason, Action: action, Note: message, Warn: warn,
	})
}

// instance names this one of several controllers in Events.
func instance() string {
	host, err := os.Hostname()
	if err != nil {
		return component
	}
	return component + "-" + host
}
