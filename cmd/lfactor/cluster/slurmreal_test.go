package cluster_test

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
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

// slurmed is a rig with Slurm's own daemons, one a host, and a run.
type slurmed struct {
	*Rig
	t           *testing.T
	dir, binary string
	env         []string
	jobs        int
}

// newSlurmed waits until all three hosts are idle.
func newSlurmed(t *testing.T) *slurmed {
	t.Helper()
	if !*long {
		t.Skip("left out: Slurm's own daemons on three hosts, about a minute; add -long")
	}
	for _, tool := range []string{"slurmctld", "slurmd", "sbatch", "munged"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skipf("left out: it needs %s (Debian: slurmctld slurmd slurm-client munge)", tool)
		}
	}
	dir := tinyRun(t)
	require.NoError(t, os.Chmod(filepath.Dir(dir), 0o755))
	s := &slurmed{Rig: newRig(t, 3, dir), t: t, dir: dir, binary: filepath.Join(dir, "lfactor")}
	clitest.InstallBoth(t, s.binary)
	s.env = slurmOn(t, s.Rig, dir)
	s.idle()
	return s
}

// idle waits until all hosts are.
func (s *slurmed) idle() {
	s.t.Helper()
	require.Eventually(s.t, func() bool {
		out, err := s.on("sinfo", "-h", "-o", "%t %D")
		return err == nil && strings.TrimSpace(out) == "idle 3"
	}, 2*time.Minute, 200*time.Millisecond, "the hosts are not idle")
}

// on carries out a command of Slurm's.
func (s *slurmed) on(args ...string) (string, error) {
	out, err := s.Hosts[0].In(s.dir, append(s.env, args...)...).CombinedOutput()
	return string(out), err
}

// must is on for what may not fail.
func (s *slurmed) must(args ...string) string {
	s.t.Helper()
	out, err := s.on(args...)
	require.NoError(s.t, err, "%v: %s", args, out)
	return strings.TrimSpace(out)
}

// script writes the documented script for a run that takes so many steps until Gate lets it take more.
func (s *slurmed) script(gate int, train string, edit ...string) {
	s.t.Helper()
	text := sbatchScript(s.t, "env "+clitest.Gated(s.t, s.dir, gate)[0]+" "+s.binary, train)
	text = strings.NewReplacer(edit...).Replace(text)
	require.NoError(s.t, os.WriteFile(filepath.Join(s.dir, "job.sh"), []byte(text), 0o755))
}

// slurmJob is a job that was submitted.
type slurmJob struct {
	s   *slurmed
	id  string
	out string
}

func (s *slurmed) submit() *slurmJob {
	s.t.Helper()
	s.jobs++
	j := &slurmJob{s: s, out: fmt.Sprintf("job-%d.log", s.jobs)}
	j.id = s.must("sbatch", "--parsable", "--open-mode=append", "-o", j.out, "job.sh")
	return j
}

// field is what scontrol says of a job.
func (j *slurmJob) field(name string) string {
	out, _ := j.s.on("scontrol", "-o", "show", "job", j.id) // "" as long as it does not answer
	_, at, _ := strings.Cut(out, " "+name+"=")
	at, _, _ = strings.Cut(at, " ")
	return at
}

func (j *slurmJob) log() string {
	text, _ := os.ReadFile(filepath.Join(j.s.dir, j.out)) // there is none before it begins
	return string(text)
}

// says waits until the job has written something.
func (j *slurmJob) says(what string) {
	j.s.t.Helper()
	require.Eventually(j.s.t, func() bool { return strings.Contains(j.log(), what) }, 3*time.Minute, 50*time.Millisecond,
		"%q is not in %s", what, lazy(j.log))
}

// ends waits until the job has ended.
func (j *slurmJob) ends() {
	j.s.t.Helper()
	require.Eventually(j.s.t, func() bool {
		return !slices.Contains([]string{"", "RUNNING", "PENDING", "COMPLETING", "CONFIGURING", "REQUEUED"}, j.field("JobState"))
	}, 3*time.Minute, 200*time.Millisecond, "%s", lazy(j.log))
	require.Equal(j.s.t, "COMPLETED", j.field("JobState"), j.log())
}

// lazy is a text that is asked for when it is shown.
type lazy func() string

func (l lazy) String() string { return l() }

// quietState is the state of the same run that nobody disturbed.
func quietState(t *testing.T, steps int) state {
	t.Helper()
	quiet := tinyRun(t)
	code, out := runIn(t, quiet, nil, "train", "run.yaml", "-q", fmt.Sprint("train.steps=", steps))
	require.Zero(t, code, out)
	return stateOf(t, quiet, int64(steps))
}

// TestSlurmReal: Slurm's own daemons, one a host. The documented script trains; scancel has the run save
// within KillWait; the same script resumes, to the weights of a run that nobody disturbed.
func TestSlurmReal(t *testing.T) {
	const steps = 200
	s := newSlurmed(t)
	want := quietState(t, steps)
	s.script(100, fmt.Sprintf("train run.yaml plan.procs=2 checkpoint.interval=1000 train.steps=%d", steps))
	j := s.submit()
	j.says("step 5/")
	began := time.Now()
	s.must("scancel", "-u", "root")
	clitest.Gate(t, s.dir, 150) // it ends behind a step, and not by itself before it has heard the signal
	require.Eventually(t, func() bool {
		return j.field("JobState") == "CANCELLED" && strings.Contains(j.log(), "durable")
	}, 2*time.Minute, 100*time.Millisecond, "%s", lazy(j.log))
	t.Logf("saved and ended %v after scancel: KillWait is 30 s", time.Since(began).Round(time.Millisecond))
	clitest.Gate(t, s.dir, clitest.Open)
	j = s.submit()
	j.ends()
	require.Contains(t, j.log(), "verified", "it goes on from the save")
	require.Contains(t, j.log(), "the allocation ends at", "scontrol tells")
	require.Equal(t, want, stateOf(t, s.dir, steps), j.log())
}

// again waits until Slurm has started a requeued job anew; it makes one wait for two minutes else.
func (j *slurmJob) again(restarts string) {
	j.s.t.Helper()
	require.Eventually(j.s.t, func() bool {
		if j.field("JobState") == "PENDING" {
			_, _ = j.s.on("scontrol", "update", "jobid="+j.id, "starttime=now") // it may have begun meanwhile
		}
		return j.field("Restarts") == restarts && j.field("JobState") == "RUNNING"
	}, 4*time.Minute, 200*time.Millisecond, "%s", lazy(func() string { return j.field("JobState") + " " + j.field("Reason") + j.log() }))
}

// TestSlurmRequeue: a job that is requeued saves, and goes on from there with none of its steps taken again; where a host
// goes down it goes on without that. Without --no-kill Slurm requeues it then, and it goes on from its last checkpoint.
// Weights, state and ledger are those of a run that nobody disturbed.
func TestSlurmRequeue(t *testing.T) {
	const steps = 240
	s := newSlurmed(t)
	want := quietState(t, steps)
	train := fmt.Sprintf("train run.yaml plan.procs=2 checkpoint.interval=20 train.steps=%d", steps)
	s.script(50, train)
	j := s.submit()
	j.says("step 45/")
	s.must("scontrol", "requeue", j.id)
	clitest.Gate(t, s.dir, 110)
	j.again("1")
	j.says("step 105/")
	for step := range 50 {
		require.Equal(t, 1, strings.Count(j.log(), fmt.Sprintf("\nstep %d/", step+1)), "step %d: %s", step+1, j.log())
	}
	s.must("scontrol", "update", "nodename=h2", "state=down", "reason=test")
	clitest.Gate(t, s.dir, 160)
	j.says("step 155/")
	require.Equal(t, "1", j.field("Restarts"))
	require.Contains(t, j.log(), "recovered after", j.log())
	s.must("scancel", j.id)
	clitest.Gate(t, s.dir, 170)
	require.Eventually(t, func() bool { return j.field("JobState") == "CANCELLED" }, 2*time.Minute, 100*time.Millisecond)

	s.idle() // ReturnToService brings h2 back
	s.script(200, train, "--no-kill --signal", "--requeue --signal", "srun --no-kill", "srun")
	j = s.submit()
	j.says("step 195/")
	s.must("scontrol", "update", "nodename=h2", "state=down", "reason=test")
	clitest.Gate(t, s.dir, clitest.Open)
	j.again("1")
	j.ends()
	require.Equal(t, want, stateOf(t, s.dir, steps), j.log())
}
