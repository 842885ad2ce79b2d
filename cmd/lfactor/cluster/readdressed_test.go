package cluster_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/cmd/lfactor/clitest"
)

// TestClusterReaddressed: a host of a run gets another address, as from DHCP, while its agent goes on. The run goes on, with
// the losses and the state of one that nobody disturbed, and the host takes part under its new address.
func TestClusterReaddressed(t *testing.T) {
	longOnly(t, "a host that changes its address, on hosts of namespaces")
	const steps = 60
	train := []string{"train", "run.yaml", "plan.procs=2", "train.buddy=1", fmt.Sprint("train.steps=", steps)}
	quiet := tinyRun(t)
	code, out := runIn(t, quiet, nil, append(train, "-q")...)
	require.Zero(t, code, out)
	dir := tinyRun(t)
	r := onRig(t, dir, 3)
	r.on(0, "cluster", "drain", "h1")
	r.onWith(0, clitest.Gated(t, dir, 20), append(train, "--cluster", "rig", "--detach")...)
	require.Eventually(t, func() bool { return clitest.Steps(t, dir) >= 20 }, 2*time.Minute, time.Millisecond)
	before := r.on(0, "events")
	h := r.Hosts[2]
	r.do("ip", "-n", h.ns, "addr", "del", h.Addr+"/24", "dev", "eth0")
	r.do("ip", "-n", h.ns, "addr", "add", "10.77.0.33/24", "dev", "eth0")
	clitest.Gate(t, dir, 40)
	require.Eventually(t, func() bool { return clitest.Steps(t, dir) >= 40 }, 2*time.Minute, 10*time.Millisecond, "%s",
		lazy(func() string { return r.on(0, "events") }))
	require.Eventually(t, func() bool { return strings.Contains(r.on(0, "cluster", "status"), " 10.77.0.33 ") }, time.Minute,
		50*time.Millisecond)
	clitest.Gate(t, dir, clitest.Open)
	said := r.on(0, "attach")
	same(t, metrics(t, quiet), metrics(t, dir))
	require.Equal(t, stateOf(t, quiet, steps), stateOf(t, dir, steps), said)
	r.on(0, "train", "run.yaml", "--cluster", "rig", "plan.procs=2", "train.steps=4", "log.dir=run2", "checkpoint.dir=ckpt2")
	t.Log(r.on(0, "events")[len(before):])
	require.Contains(t, r.on(0, "cluster", "check"), "6/6 ways between hosts")
}
