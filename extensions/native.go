package extensions

import (
	"context"
	"errors"
	"fmt"
	"time"

	"onebit/extensions/abi"
	"onebit/extensions/host"
	"onebit/extensions/policy"
)

// native is the built-in policy where it is called: the source that its module was made of, as part of this program. All that
// a module is told and may answer is the same, and so are its limits; what is gone is the way to another process. No other
// module is run like this. It implements Worker.
type native struct {
	policy *policy.Policy
	limits abi.Limits
}

// startNative reads the configuration, as the module would.
func startNative(j Job) (Worker, error) {
	config := j.Setup.Config
	if len(config) == 0 {
		config = []byte("{}")
	}
	p, err := policy.Open(config)
	if err != nil {
		return nil, &host.SetupError{Step: abi.Configure, Refuse: err.Error()}
	}
	return &native{p, j.Limits}, nil
}

// Call answers a request. A look at memory counts as one unit: the module is charged more for it, so it would have ended before.
func (n *native) Call(ctx context.Context, c host.Call) (host.Result, error) {
	switch {
	case c.Function != abi.Route:
		return host.Result{}, fmt.Errorf("calling the policy: it has no %q", c.Function)
	case len(c.Request) > abi.MaxRequest:
		return host.Result{}, fmt.Errorf("calling the policy: a request of %d bytes, at most %d", len(c.Request), abi.MaxRequest)
	case ctx.Err() != nil:
		return host.Result{}, ctx.Err()
	case !c.Deadline.IsZero() && !time.Now().Before(c.Deadline):
		return host.Result{}, fmt.Errorf("%w: %w", ErrWaited, &host.CallError{Cause: host.CauseTimeout, Detail: "the deadline passed before the call"})
	}
	answer, used, err := n.policy.Route(c.Request, n.limits.Units)
	r := host.Result{Answer: answer, Units: used, Pages: policy.Pages}
	switch {
	case errors.Is(err, policy.ErrSpent):
		return r, &host.CallError{Cause: host.CauseBudget, Detail: fmt.Sprintf("all of %d units are used up", n.limits.Units)}
	case errors.Is(err, policy.ErrSize):
		return r, &host.CallError{Cause: host.CauseAnswer, Detail: fmt.Sprintf("it refused %d bytes", len(c.Request))}
	case err != nil:
		return r, &host.CallError{Cause: host.CauseTrap, Detail: err.Error()}
	}
	return r, nil
}

// Gone is never so: there is nothing that could end.
func (n *native) Gone() bool { return false }

// Close has nothing to do.
func (n *native) Close() error { return nil }
