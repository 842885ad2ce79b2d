package deploy

import (
	"errors"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/configs/exit"
)

// task is the environment of a task of Slurm.
func task(change ...string) func(string) string {
	env := map[string]string{"SLURM_JOB_ID": "41", "SLURM_STEP_ID": "2", "SLURM_PROCID": "1",
		"SLURM_NTASKS": "3",
		"SLURM_NNODES": "3", "SLURMD_NODENAME": "n2", "SLURM_SUBMIT_DIR": "/work"}
	for i := 0; i < len(change); i += 2 {
		env[change[i]] = change[i+1]
	}
	return func(name string) string { return env[name] }
}

// TestReadSlurm: what a task reads of itself, and what it refuses in one line with exit code 2.
func TestReadSlurm(t *testing.T) {
	s, err := ReadSlurm(task(), nil)
	require.NoError(t, err)
	require.Equal(t, Gang{Launcher: Slurm, Job: "41", Step: "2", Task: 1, Tasks: 3, Host: "n2",
		Meet: "/work"}, s)
	require.Equal(t, "slurm-41", s.Cluster())
	again, err := ReadSlurm(task("SLURM_RESTART_COUNT", "1"), nil)
	require.NoError(t, err)
	require.Equal(t, "slurm-41-1", again.Cluster())
	require.NotEqual(t, s.file(), again.file(), "tokens that a first task left which was lost are none of a requeued job's")
	s, err = ReadSlurm(task("SLURM_LAUNCH_NODE_IPADDR", "127.0.0.1", "SLURMD_NODENAME", "localhost"),
		nil)
	require.NoError(t, err)
	addr, err := s.Addr()
	require.NoError(t, err)
	require.Equal(t, "127.0.0.1", addr, "on the way to the host that srun was started on")
	s.From = ""
	_, err = s.Addr()
	require.ErrorContains(t, err, "--addr")
	for want, change := range map[string][2]string{
		"SLURM_PROCID=\"\"":      {"SLURM_PROCID", ""},
		"SLURM_NTASKS=\"x\"":     {"SLURM_NTASKS", "x"},
		"6 tasks on 3 hosts":     {"SLURM_NTASKS", "6"},
		"SLURM_JOB_ID and":       {"SLURM_JOB_ID", ""},
		"seconds since 1970":     {"SLURM_JOB_END_TIME", "soon"},
		"SLURM_NNODES=\"-1\"":    {"SLURM_NNODES", "-1"},
		"and SLURMD_NODENAME ar": {"SLURMD_NODENAME", ""},
	} {
		_, err := ReadSlurm(task(change[0], change[1]), nil)
		require.ErrorContains(t, err, want)
		var coded interface{ ExitCode() int }
		require.True(t, errors.As(err, &coded))
		require.Equal(t, exit.Usage, coded.ExitCode(), want)
	}
}

// TestSlurmEnd: the end of an allocation from the environment, else from scontrol, which may not know one.
func TestSlurmEnd(t *testing.T) {
	s, err := ReadSlurm(task("SLURM_JOB_END_TIME", "1795374200"), func(string) (string, error) {
		t.Error("nobody has to be asked")
		return "", nil
	})
	require.NoError(t, err)
	require.Equal(t, int64(1795374200), s.End.Unix())
	says := func(text string, fails error) (Gang, error) {
		return ReadSlurm(task(), func(job string) (string, error) {
			require.Equal(t, "41", job)
			return text, fails
		})
	}
	s, err = says("JobId=41 StartTime=2026-11-22T19:00:00 EndTime=2026-11-22T20:42:00 Deadline=N/A", nil)
	require.NoError(t, err)
	require.Equal(t, time.Date(2026, 11, 22, 20, 42, 0, 0, time.Local), s.End)
	for _, text := range []string{"", "JobId=41 EndTime=Unknown Deadline=N/A"} {
		s, err = says(text, nil)
		require.NoError(t, err)
		require.True(t, s.End.IsZero())
	}
	for want, x := range map[string]struct {
		text string
		err  error
	}{"never": {"EndTime=never ", nil}, os.ErrPermission.Error(): {"", os.ErrPermission}} {
		s, err = says(x.text, x.err) // the run begins all the same
		require.NoError(t, err)
		require.True(t, s.End.IsZero())
		require.Contains(t, s.Note, want)
	}
}

// TestSlurmMeeting: a task takes the token that is its own, and refuses a file that has none for it.
func TestSlurmMeeting(t *testing.T) {
	s := Gang{Launcher: Slurm, Job: "1", Step: "0", Task: 2, Tasks: 3, Meet: t.TempDir()}
	require.NoError(t, os.WriteFile(s.file(), []byte(`{"tokens":["a","b"]}`), 0o600))
	_, err := s.Invited(t.Context())
	require.ErrorContains(t, err, "token", "the second, which is none of a cluster")
	require.NoError(t, os.WriteFile(s.file(), []byte(`{"tokens":["a"]}`), 0o600))
	_, err = s.Invited(t.Context())
	require.ErrorContains(t, err, "is not what the first task writes")
	require.NoError(t, s.Leave(true))
	require.NoFileExists(t, s.file())
	require.NoError(t, s.Leave(true), "it may be gone")
	s.Launcher = Kubernetes
	require.NoError(t, s.Leave(true))
	_, err = s.Invited(t.Context())
	require.ErrorIs(t, err, ErrDone)
	require.NoError(t, s.Leave(false))
	require.NoFileExists(t, s.file())
}

// TestReadKubernetes: what a pod reads of itself, and what it refuses in one line with exit code 2.
func TestReadKubernetes(t *testing.T) {
	pod := func(change ...string) func(string) string {
		env := map[string]string{EnvJob: "train", EnvUID: "u7", EnvHosts: "4", EnvPod: "train-3",
			EnvPodIP:               "10.0.0.7",
			EnvMeet:                "/data",
			"JOB_COMPLETION_INDEX": "3"}
		for i := 0; i < len(change); i += 2 {
			env[change[i]] = change[i+1]
		}
		return func(name string) string { return env[name] }
	}
	s, err := ReadKubernetes(pod())
	require.NoError(t, err)
	require.Equal(t, Gang{Launcher: Kubernetes, Job: "train", Step: "u7", Task: 3, Tasks: 4, Host: "train-3",
		IP: "10.0.0.7", Meet: "/data"}, s)
	require.Equal(t, "kubernetes-train", s.Cluster())
	addr, err := s.Addr()
	require.NoError(t, err)
	require.Equal(t, "10.0.0.7", addr)
	for want, change := range map[string][2]string{
		"JOB_COMPLETION_INDEX=\"\"": {"JOB_COMPLETION_INDEX", ""},
		"LFACTOR_HOSTS=\"many\"":    {EnvHosts, "many"},
		"LFACTOR_MEET is not set":   {EnvMeet, ""},
		"have to agree":             {EnvHosts, "3"},
	} {
		_, err := ReadKubernetes(pod(change[0], change[1]))
		require.ErrorContains(t, err, want)
		var coded interface{ ExitCode() int }
		require.True(t, errors.As(err, &coded))
		require.Equal(t, exit.Usage, coded.ExitCode(), want)
	}
}
