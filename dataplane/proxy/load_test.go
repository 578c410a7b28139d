package proxy

import (
	"testing"

	"github.com/fairlead/fairlead/internal/testkit"
)

func TestMain(m *testing.M) { testkit.Main(m) }

func TestLoads(t *testing.T) {
	var o proxyObjects
	spec, err := loadProxy()
	if err != nil {
		t.Fatal(err)
	}
	if err := spec.LoadAndAssign(&o, nil); err != nil {
		t.Fatalf("%+v", err)
	}
	o.Close()
}
