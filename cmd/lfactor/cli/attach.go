package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync"

	"github.com/lfactor/lfactor/actors/cluster/control"
	"github.com/lfactor/lfactor/actors/cluster/head"
	"github.com/lfactor/lfactor/actors/cluster/user"
	"github.com/lfactor/lfactor/configs/exit"
)

// Attach shows what a job of a cluster writes until it ends, and ends as it does. Where owned, the end
// of ctx asks the job to end as a signal would ask a run here; else it ends the showing.
func Attach(ctx context.Context, client *control.Client, job string, out, errs io.Writer, owned bool) error {
	follow := ctx
	if owned {
		follow = context.WithoutCancel(ctx)
		var asked sync.WaitGroup
		defer asked.Wait()
		defer context.AfterFunc(ctx, func() {
			asked.Go(func() {
				if err := client.Do(follow, "POST", "/v1/jobs/"+job+"/stop?signal="+stopSignal(), nil,
					nil); err != nil {
					fmt.Fprintf(errs, "job %s cannot be asked to end: %v\n", job, err)
				}
			})
		})()
	}
	shown := map[string]io.Writer{"stdout": Visible(out, "\r"), "stderr": Visible(errs, "\r")}
	text, err := user.Follow(follow, client, job, func(o user.Output) {
		w := shown[o.Stream]
		if w == nil {
			w = shown["stderr"]
		}
		_, _ = w.Write(o.Data) // whoever reads may have gone; the job goes on
	}, func(err error) {
		fmt.Fprintf(errs, "! the cluster's head is away (%v); the job goes on, waiting for the head\n", err)
	})
	if err != nil {
		return err
	}
	var end head.Job
	if err := json.Unmarshal(text, &end); err != nil {
		return err
	}
	if end.Code != 0 {
		return exit.With(ended(end), end.Code)
	}
	return nil
}

// ended is the error of a job that has failed. One whose leading process has ended with an exit code has said why.
func ended(j head.Job) error {
	if j.Why == fmt.Sprintf("ended with exit code %d", j.Code) {
		return errors.New("")
	}
	return fmt.Errorf("job %s %s", j.ID, j.Why)
}

func stopSignal() string {
	if stopCode() == exit.Interrupted {
		return "int"
	}
	return "term"
}
