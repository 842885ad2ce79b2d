package data

import (
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/lfactor/lfactor/cmd/lfactor/cli"
	"github.com/lfactor/lfactor/configs/exit"
	"github.com/lfactor/lfactor/dataset/jobs"
)

// follow is ingest --follow.
type follow struct {
	jobs.FollowConfig
	idle time.Duration
}

// followFlags adds the flags of ingest --follow.
func followFlags(c *cobra.Command) *follow {
	f := &follow{}
	c.Flags().StringVar(&f.Pattern, "follow", "",
		"take shards of this pattern as they come, as in \"incoming/*.jsonl.gz\"")
	c.Flags().StringVar(&f.Output, "to", "", "folder of the data set that grows")
	c.Flags().IntVar(&f.Shards, "generation", 1, "shards that come into the data set together")
	c.Flags().DurationVar(&f.Settle, "settle", 2*time.Second,
		"a file is whole when it has stayed as it is for so long")
	c.Flags().StringVar(&f.Marker, "marker", "",
		"a file is whole when a file of its name with this ending is there too")
	c.Flags().DurationVar(&f.idle, "idle", 0,
		"end the data set when nothing has come for so long; 0 never does")
	c.Flags().StringVar(&f.Open.TextKey, "text-key", "",
		"key or column that holds the text (default \"text\")")
	return f
}

// lookEvery is how often the producer's folder is looked at.
const lookEvery = 200 * time.Millisecond

// run follows until it is interrupted or idle.
func (f *follow) run(c *cobra.Command, args []string) error {
	if len(args) > 0 || f.Output == "" || f.Shards < 1 || f.Settle < 0 {
		return exit.Usagef("--follow wants --to, no JOB, a generation of at least one shard, and no negative time")
	}
	r, err := jobs.Follow(c.Context(), f.FollowConfig, lookEvery, f.idle, func(r jobs.FollowReport) {
		fmt.Fprintf(c.ErrOrStderr(), "%d shards in %d generations, %d waiting, %d events in quarantine\n",
			r.Shards,
			r.Generations, r.Waiting, r.Quarantined)
	})
	if err != nil {
		return err
	}
	return cli.Emit(c, r, func(w io.Writer) {
		fmt.Fprintf(w, "%d generations of %d shards, %d bytes; %d events in quarantine\ntrain on %s/manifest.jsonl with "+
			"data.follow=true\n", r.Generations, r.Shards, r.Bytes, r.Quarantined, f.Output)
	})
}
