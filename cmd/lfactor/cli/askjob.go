package cli

import (
	"context"
	"net/url"

	"github.com/lfactor/lfactor/actors/cluster/agent"
	"github.com/lfactor/lfactor/actors/cluster/head"
	"github.com/lfactor/lfactor/actors/cluster/user"
	"github.com/lfactor/lfactor/actors/host"
)

// AskJob asks the processes of a job of a cluster, wherever they are, what their actors wait for and have sent,
// and names those that do not answer. Args may have the job's number; the newest that runs is the default.
func AskJob(ctx context.Context, cluster string, args []string) (all []host.Status, silent []host.Silent, err error) {
	cl, err := user.Open(cluster)
	if err != nil {
		return nil, nil, err
	}
	client, err := cl.Client()
	if err != nil {
		return nil, nil, err
	}
	job := "running"
	if len(args) == 1 {
		job = url.PathEscape(args[0])
	}
	var answers []head.Because
	if err := client.Do(ctx, "GET", "/v1/jobs/"+job+"/why", nil, &answers); err != nil {
		return nil, nil, err
	}
	for _, a := range answers {
		b, err := agent.BecauseOf(a.Answer, a.Proc, a.Pid, a.Host, a.Away)
		if err != nil {
			return nil, nil, err
		}
		all = append(all, b.Waits...)
		if b.Silent != nil {
			silent = append(silent, *b.Silent)
		}
	}
	return all, silent, nil
}
