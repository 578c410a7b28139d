package devices

import (
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"time"

	"github.com/vishvananda/netns"

	"github.com/fairlead/fairlead/internal/ownns"
)

// ErrClosed is the error of a Worker, wrapped, once it has ended.
var ErrClosed = errors.New("closed")

// Work is what a Worker does. All of it runs on the worker's thread, sequentially, and so
// needs no lock.
type Work struct {
	Name string // prefix of errors and logs
	Log  *slog.Logger
	// Begin opens what the work needs. Later changes are noticed.
	Begin func() error
	// Release closes what Begin opened, including before a failure.
	Release func() error
	// Reconcile programs the desired state into the kernel. It is called when
	// devices, addresses or routes have changed, once after Begin, and periodically,
	// to catch missed changes. Its errors are logged.
	Reconcile func() error
	// Settle is the delay between a change and Reconcile: changes come in bursts.
	// Relook is the interval of periodic calls.
	Settle, Relook time.Duration
}

// Worker follows a network namespace on its own thread there, for code that attaches to
// its devices. Its methods may be called from any goroutine, but not from the work
// itself.
type Worker struct {
	work  Work
	calls chan func()
	done  chan struct{} // closed when the thread has ended
	quit  bool          // used only by the thread
}

// Start begins the work, in the calling thread's network namespace.
func Start(work Work) (*Worker, error) {
	ns, err := netns.Get()
	if err != nil {
		return nil, fmt.Errorf("%s: own network namespace: %w", work.Name, err)
	}
	defer ns.Close()
	w := &Worker{work: work, calls: make(chan func()), done: make(chan struct{})}
	began := make(chan error)
	go w.run(ns, began)
	if err := <-began; err != nil {
		return nil, fmt.Errorf("%s: %w", work.Name, err)
	}
	return w, nil
}

// run never unlocks its thread, which is in another namespace than the others and ends
// with it.
func (w *Worker) run(ns netns.NsHandle, began chan<- error) {
	runtime.LockOSThread()
	defer close(w.done)
	watch, err := w.begin(ns)
	began <- err
	if err != nil {
		return
	}
	defer watch.Close()
	w.loop(watch.Changed)
}

func (w *Worker) begin(ns netns.NsHandle) (*Watch, error) {
	if err := ownns.Enter(int(ns)); err != nil {
		return nil, err
	}
	// Before the first read, so that later changes are noticed.
	watch, err := NewWatch(All)
	if err != nil {
		return nil, err
	}
	if err := w.work.Begin(); err != nil {
		watch.Close()
		return nil, errors.Join(err, w.work.Release())
	}
	return watch, nil
}

func (w *Worker) loop(changed <-chan struct{}) {
	again, soon := time.NewTicker(w.work.Relook), time.NewTimer(w.work.Settle)
	defer again.Stop()
	defer soon.Stop()
	for waiting := true; !w.quit; {
		select {
		case call := <-w.calls:
			call()
			continue
		case <-changed:
			if !waiting {
				waiting = true
				soon.Reset(w.work.Settle)
			}
			continue
		case <-soon.C:
			waiting = false
		case <-again.C:
		}
		if err := w.work.Reconcile(); err != nil {
			w.work.Log.Error(w.work.Name+": attach or write", "error", err)
		}
	}
}

// Do runs f on the worker's thread, and returns its result, or ErrClosed.
func (w *Worker) Do(f func() error) error {
	answer := make(chan error, 1)
	select {
	case w.calls <- func() { answer <- f() }:
		return <-answer
	case <-w.done:
		return fmt.Errorf("%s: %w", w.work.Name, ErrClosed)
	}
}

// Ask is Do for a function with a result.
func Ask[T any](w *Worker, f func() (T, error)) (answer T, err error) {
	err = w.Do(func() (err error) {
		answer, err = f()
		return err
	})
	return answer, err
}

// Done is closed when the work has ended.
func (w *Worker) Done() <-chan struct{} { return w.done }

// End ends the work. It first calls last, unless nil, and then Release.
func (w *Worker) End(last func() error) error {
	err := w.Do(func() error {
		w.quit = true
		var err error
		if last != nil {
			err = last()
		}
		return errors.Join(err, w.work.Release())
	})
	<-w.done
	return err
}
