package deploy

import (
	"strconv"

	"github.com/lfactor/lfactor/configs/exit"
)

// Kubernetes is the launcher whose tasks are the pods of an indexed job.
const Kubernetes = "Kubernetes"

// The environment of a pod, beside JOB_COMPLETION_INDEX, which Kubernetes sets itself.
const (
	EnvJob   = "LFACTOR_JOB"     // the job's name
	EnvUID   = "LFACTOR_JOB_UID" // what tells it from one before of that name
	EnvHosts = "LFACTOR_HOSTS"   // how many pods it has
	EnvPod   = "LFACTOR_POD"     // this one's name
	EnvPodIP = "LFACTOR_POD_IP"
	EnvMeet  = "LFACTOR_MEET" // directory of a volume that all mount
)

// ReadKubernetes reads a pod's environment, as `lfactor cluster manifest` sets it.
func ReadKubernetes(env func(string) string) (s Gang, err error) {
	s = Gang{Launcher: Kubernetes, Job: env(EnvJob), Step: env(EnvUID), Host: env(EnvPod), IP: env(EnvPodIP),
		Meet: env(EnvMeet)}
	for _, name := range []string{EnvJob, EnvUID, EnvPod, EnvPodIP, EnvMeet} {
		if env(name) == "" {
			return s, exit.Usagef("%s is not set: this is not a pod of a job that lfactor cluster manifest has "+
				"described", name)
		}
	}
	for name, to := range map[string]*int{"JOB_COMPLETION_INDEX": &s.Task, EnvHosts: &s.Tasks} {
		if *to, err = strconv.Atoi(env(name)); err != nil || *to < 0 {
			return s, exit.Usagef("%s=%.32q: want a number; the job's completionMode has to be Indexed",
				name, env(name))
		}
	}
	if s.Task >= s.Tasks {
		return s, exit.Usagef("JOB_COMPLETION_INDEX=%d of %s=%d: completions and that number have to agree", s.Task,
			EnvHosts, s.Tasks)
	}
	return s, nil
}
