package deploy

import (
	"bytes"
	"errors"
	"fmt"
	"os/exec"
	"strconv"
	"strings"
	"time"

	"github.com/lfactor/lfactor/configs/exit"
)

// Slurm is the launcher whose tasks srun starts.
const Slurm = "Slurm"

// ReadSlurm reads a task's environment. Asked is what `scontrol show job` says, for versions of Slurm that
// do not tell the end of the allocation; nil asks nobody.
func ReadSlurm(env func(string) string, asked func(job string) (string, error)) (s Gang, err error) {
	s = Gang{Launcher: Slurm, Job: env("SLURM_JOB_ID"), Step: env("SLURM_STEP_ID"),
		Host: env("SLURMD_NODENAME"),
		Meet: env("SLURM_SUBMIT_DIR"), From: env("SLURM_LAUNCH_NODE_IPADDR")}
	if n := env("SLURM_RESTART_COUNT"); n != "" && n != "0" {
		s.Again = "-" + n
	}
	number := func(name string) (n int) {
		if err == nil {
			if n, err = strconv.Atoi(env(name)); err != nil || n < 0 {
				err = exit.Usagef("%s=%.32q: this is not a task that srun has started; run `srun lfactor "+
					"cluster join --slurm` inside an allocation", name, env(name))
			}
		}
		return n
	}
	s.Task, s.Tasks = number("SLURM_PROCID"), number("SLURM_NTASKS")
	nodes := number("SLURM_NNODES")
	switch {
	case err != nil:
		return s, err
	case s.Job == "" || s.Host == "":
		return s, exit.Usagef("SLURM_JOB_ID and SLURMD_NODENAME are not set: this is not a task that srun has " +
			"started")
	case s.Tasks != nodes:
		return s, exit.Usagef("%d tasks on %d hosts: give srun --ntasks-per-node=1, for lfactor has one agent "+
			"a host", s.Tasks, nodes)
	}
	return s, s.readEnd(env("SLURM_JOB_END_TIME"), asked)
}

// readEnd finds the end of the allocation: seconds since 1970, or what scontrol says.
func (s *Gang) readEnd(seconds string, asked func(job string) (string, error)) error {
	if seconds != "" {
		n, err := strconv.ParseInt(seconds, 10, 64)
		if err != nil {
			return exit.Usagef("SLURM_JOB_END_TIME=%.32q: want seconds since 1970", seconds)
		}
		s.End = time.Unix(n, 0)
		return nil
	}
	if asked == nil {
		return nil
	}
	text, err := asked(s.Job)
	if err != nil {
		s.Note = fmt.Sprintf("when the allocation ends is not known: %v; give sbatch --signal=TERM@90, so that the run "+
			"saves before", err)
		return nil
	}
	_, at, ok := strings.Cut(text, "EndTime=")
	if at, _, _ = strings.Cut(at, " "); !ok || at == "Unknown" {
		return nil
	}
	if s.End, err = time.ParseInLocation("2006-01-02T15:04:05", strings.TrimSpace(at), time.Local); err != nil {
		s.End, s.Note = time.Time{}, fmt.Sprintf("when the allocation ends is not known: scontrol says EndTime=%.64q", at)
	}
	return nil
}

// AskSlurm is what `scontrol show job` says of a job, on one line. A host without scontrol knows no end.
func AskSlurm(job string) (string, error) {
	text, err := exec.Command("scontrol", "-o", "show", "job", job).Output()
	if errors.Is(err, exec.ErrNotFound) {
		return "", nil
	}
	var failed *exec.ExitError
	if errors.As(err, &failed) {
		err = fmt.Errorf("scontrol: %w: %.256s", err, bytes.TrimSpace(failed.Stderr))
	}
	return string(text), err
}
