package configs

// EnvGoverned is set where a run may start no programs that it names: it is a submitter's job, on a host whose
// agent runs such jobs as itself.
const EnvGoverned = "LFACTOR_GOVERNED"

// governed refuses programs where there may be none; the address of a service is none.
func (l *loader) governed(getenv func(string) string) {
	if getenv == nil || getenv(EnvGoverned) == "" {
		return
	}
	for _, k := range table().keys {
		all := l.c.given[k.Name]
		if !k.runs || len(all) == 0 {
			continue
		}
		if k.Name != "rollout.environment" || !l.c.Run.Rollout.Served() {
			l.fail(all[len(all)-1].origin, k.Name, "names a program, and jobs of users with the role submit start none here, as the "+
				"agent is not root", "an administrator submits the job, or has the agents run as root")
		}
	}
}
