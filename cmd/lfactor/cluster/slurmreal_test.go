package cluster_test

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/cmd/lfactor/clitest"
)

// slurmConf is a cluster of Slurm on hosts of a rig.
const slurmConf = `ClusterName=rig
SlurmctldHost=h1(10.77.0.1)
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket=%[1]s/munge.socket
CredType=cred/munge
MpiDefault=none
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
ReturnToService=2
SlurmdParameters=config_overrides
KillWait=30
SlurmdTimeout=30
StateSaveLocation=%[1]s/state
SlurmdSpoolDir=%[1]s/spool.%%n
SlurmctldPidFile=%[1]s/slurmctld.pid
SlurmdPidFile=%[1]s/slurmd.%%n.pid
SlurmctldLogFile=%[1]s/slurmctld.log
SlurmdLogFile=%[1]s/slurmd.%%n.log
`

// slurmOn starts Slurm's own daemons on a rig, and returns the environment of its commands.
func slurmOn(t *testing.T, r *Rig, dir string) []string {
	t.Helper()
	d := filepath.Join(dir, "slurm")
	text := fmt.Sprintf(slurmConf, d)
	for _, h := range r.Hosts {
		require.NoError(t, os.MkdirAll(filepath.Join(d, "spool."+h.Name), 0o755))
		text += fmt.Sprintf("NodeName=%[1]s NodeAddr=%[2]s NodeHostname=%[1]s CPUs=2 RealMemory=4000 "+
			"State=UNKNOWN\n", h.Name, h.Addr)
	}
	text += "PartitionName=p Nodes=ALL Default=YES State=UP\n"
	conf := filepath.Join(d, "slurm.conf")
	require.NoError(t, os.WriteFile(conf, []byte(text), 0o644))
	require.NoError(t, os.MkdirAll(filepath.Join(d, "state"), 0o755))
	key := filepath.Join(d, "munge.key")
	require.NoError(t, os.WriteFile(key, bytes.Repeat([]byte("key of a rig "), 80), 0o400))
	start := func(c *exec.Cmd, log string) {
		f, err := os.Create(filepath.Join(d, log))
		require.NoError(t, err)
		c.Stdout, c.Stderr = f, f
		require.NoError(t, c.Start())
		t.Cleanup(func() {
			_ = c.Process.Kill() // it may have ended with its host
			_ = c.Wait()
			if t.Failed() {
				text, _ := os.ReadFile(f.Name())
				t.Logf("%s:\n%.4000s", log, text)
			}
		})
	}
	start(exec.Command("munged", "--foreground", "--force", "--socket="+d+"/munge.socket", "--key-file="+key,
		"--log-file="+d+"/munged.log", "--pid-file="+d+"/munged.pid", "--seed-file="+d+"/munged.seed"),
		"munged.out")
	env := "SLURM_CONF=" + conf
	start(r.Hosts[0].Command("env", env, "slurmctld", "-D", "-c", "-i"), "slurmctld.out")
	for _, h := range r.Hosts {
		start(h.Command("env", env, "slurmd", "-D", "-N", h.Name), h.Name+".out")
	}
	return []string{"env", env}
}

// sbatchScript is the script of docs/cluster.md.
func sbatchScript(t *testing.T, lfactor, train string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "..", "..", "docs", "cluster.md"))
	require.NoError(t, err)
	_, script, ok := strings.Cut(string(text), "```bash\n")
	script, _, end := strings.Cut(script, "```")
	require.True(t, ok && end, "docs/cluster.md has the script")
	script = strings.Replace(script, "--nodes=4", "--nodes=3", 1)
	require.Contains(t, script, "lfactor cluster join --slurm -- train run.yaml\n")
	return strings.Replace(script, "lfactor cluster join --slurm -- train run.yaml", lfactor+
		" cluster join --slurm -- "+train, 1)
}

// TestSlurmReal: Slurm's own daemons, one a host. The documented script trains; scancel has the run save
// within KillWait; the same script resumes, to the weights of a run that nobody disturbed.
func TestSlurmReal(t *testing.T) {
	if !*long {
		t.Skip("left out: Slurm's own daemons on three hosts, about a minute; add -long")
	}
	for _, tool := range []string{"slurmctld", "slurmd", "sbatch", "munged"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skipf("left out: it needs %s (Debian: slurmctld slurmd slurm-client munge)", tool)
		}
	}
	const steps = 200
	quiet := tinyRun(t)
	code, out := runIn(t, quiet, nil, "train", "run.yaml", "-q", fmt.Sprint("train.steps=", steps))
	require.Zero(t, code, out)
	want := stateOf(t, quiet, steps)
	dir := tinyRun(t)
	require.NoError(t, os.Chmod(filepath.Dir(dir), 0o755))
	r := newRig(t, 3, dir)
	binary := filepath.Join(dir, "lfactor")
	clitest.InstallBoth(t, binary)
	env := slurmOn(t, r, dir)
	on := func(args ...string) (string, error) {
		out, err := r.Hosts[0].In(dir, append(env, args...)...).CombinedOutput()
		return string(out), err
	}
	require.Eventually(t, func() bool {
		out, err := on("sinfo", "-h", "-o", "%t %D")
		return err == nil && strings.TrimSpace(out) == "idle 3"
	}, 2*time.Minute, 200*time.Millisecond, "the hosts are not idle")
	fault := "env " + clitest.Gated(t, dir, 100)[0] + " "
	require.NoError(t, os.WriteFile(filepath.Join(dir, "job.sh"), []byte(sbatchScript(t, fault+binary,
		fmt.Sprintf("train run.yaml plan.procs=2 checkpoint.interval=1000 train.steps=%d", steps))), 0o755))
	submit := func(n int) (state func() string, log func() string) {
		out, err := on("sbatch", "--parsable", "-o", fmt.Sprintf("job-%d.log", n), "job.sh")
		require.NoError(t, err, out)
		id := strings.TrimSpace(out)
		return func() string {
				out, _ := on("scontrol", "-o", "show", "job", id)
				_, s, _ := strings.Cut(out, "JobState=")
				s, _, _ = strings.Cut(s, " ")
				return s
			}, func() string {
				text, _ := os.ReadFile(filepath.Join(dir, fmt.Sprintf("job-%d.log", n)))
				return string(text)
			}
	}
	state, log := submit(1)
	require.Eventually(t, func() bool { return strings.Contains(log(), "step 5/") }, 2*time.Minute,
		50*time.Millisecond, "the run does not start")
	began := time.Now()
	out, err := on("scancel", "-u", "root")
	require.NoError(t, err, out)
	clitest.Gate(t, dir, 150) // it ends behind a step, and not by itself before it has heard the signal
	require.Eventually(t, func() bool {
		return state() == "CANCELLED" && strings.Contains(log(),
			"durable")
	},
		2*time.Minute, 100*time.Millisecond, "%s", log())
	t.Logf("saved and ended %v after scancel: KillWait is 30 s", time.Since(began).Round(time.Millisecond))
	clitest.Gate(t, dir, clitest.Open)
	state, log = submit(2)
	require.Eventually(t, func() bool {
		s := state()
		return s != "" && s != "RUNNING" && s != "PENDING" &&
			s != "COMPLETING"
	}, 120*time.Second, 200*time.Millisecond)
	require.Equal(t, "COMPLETED", state(), log())
	require.Contains(t, log(), "verified", "it goes on from the save")
	require.Contains(t, log(), "the allocation ends at", "scontrol tells")
	require.Equal(t, want, stateOf(t, dir, steps), log())
}
