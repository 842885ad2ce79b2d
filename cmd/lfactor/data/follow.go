package data

import (
	"context"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/lfactor/lfactor/actors/run"
	"github.com/lfactor/lfactor/cmd/lfactor/cli"
	"github.com/lfactor/lfactor/configs/exit"
	"github.com/lfactor/lfactor/dataset/jobs"
	"github.com/lfactor/lfactor/dataset/store"
	"github.com/lfactor/lfactor/topology/machine"
)

// follow is ingest --follow.
type follow struct {
	jobs.FollowConfig
	idle, every time.Duration
}

// followFlags adds the flags of ingest --follow.
func followFlags(c *cobra.Command) *follow {
	f := &follow{}
	c.Flags().StringVar(&f.Pattern, "follow", "",
		"take shards of this pattern as they come, as in \"incoming/*.jsonl.gz\"")
	var kinds []string
	for _, k := range jobs.OriginKinds() {
		kinds = append(kinds, k.Name+" ("+k.Doc+")")
	}
	c.Flags().StringVar(&f.From, "from", "files", "what --follow names: "+strings.Join(kinds, "; "))
	c.Flags().StringVar(&f.Output, "to", "", "folder of the data set that grows")
	c.Flags().IntVar(&f.Shards, "generation", 1, "shards that come into the data set together")
	c.Flags().DurationVar(&f.Settle, "settle", 2*time.Second, "a file is whole when it has stayed as it is for so long")
	c.Flags().StringVar(&f.Marker, "marker", "",
		"a file is whole when a file of its name with this ending is there too")
	c.Flags().DurationVar(&f.idle, "idle", 0,
		"end the data set when for so long nothing has come, or no run has gone on that shards wait for; 0 never does")
	c.Flags().DurationVar(&f.every, "every", 0,
		"how often the producer's place is looked at; 0 is 200ms for a folder and 1s for a store, a list or a queue")
	c.Flags().IntVar(&f.Ahead, "ahead", 0,
		"generations that the data set may be in front of that of the slowest run of --consumer; 0 takes all")
	c.Flags().StringArrayVar(&f.Consumers, "consumer", nil,
		"folder of a run (log.dir) that learns the data set; several times for several runs")
	c.Flags().StringVar(&f.Open.TextKey, "text-key", "", "key or column that holds the text (default \"text\")")
	return f
}

// How often the producer's folder is looked at, and a store, a list or a queue.
const (
	lookEvery = 200 * time.Millisecond
	askEvery  = time.Second
)

// run follows until it is interrupted or idle.
func (f *follow) run(c *cobra.Command, args []string) error {
	if len(args) > 0 || f.Output == "" || f.Shards < 1 || f.Settle < 0 {
		return exit.Usagef("--follow wants --to, no JOB, a generation of at least one shard, and no negative time")
	}
	if f.Ahead < 0 || (f.Ahead > 0) != (len(f.Consumers) > 0) {
		return exit.Usagef("--ahead wants a number of generations from 1 on and the runs that learn them, --consumer " +
			"DIR, and these want it")
	}
	for i, dir := range f.Consumers {
		f.Consumers[i] = filepath.Join(dir, run.LedgerName)
	}
	f.Say = func(note string) { fmt.Fprintln(c.ErrOrStderr(), note) }
	every := f.every
	switch {
	case every < 0:
		return exit.Usagef("--every %v: want a time that is not below 0", every)
	case every > 0:
	case f.From != "files" || store.Scheme(f.Pattern) != "":
		every = askEvery
	default:
		every = lookEvery
	}
	if kinds := jobs.OriginKinds(); !slices.ContainsFunc(kinds,
		func(k jobs.OriginKind) bool { return k.Name == f.From }) {
		var names []string
		for _, k := range kinds {
			names = append(names, k.Name)
		}
		return exit.Usagef("--from %s: shards come from %s", f.From, strings.Join(names, ", "))
	}
	r, err := jobs.Follow(c.Context(), f.FollowConfig, every, f.idle, func(r jobs.FollowReport) {
		fmt.Fprintf(c.ErrOrStderr(), "%d shards in %d generations, %d waiting, %d events in quarantine\n", r.Shards,
			r.Generations, r.Waiting, r.Quarantined)
	})
	if err != nil {
		return err
	}
	return cli.Emit(c, r, func(w io.Writer) {
		fmt.Fprintf(w, "%d generations of %d shards, %d bytes; %d events in quarantine\ntrain on %s/manifest.jsonl "+
			"with data.follow=true\n", r.Generations, r.Shards, r.Bytes, r.Quarantined, f.Output)
		if r.Ended && r.Held > 0 {
			fmt.Fprintf(w, "%d whole shards were left: no run of --consumer has gone on for %v\n", r.Held, f.idle)
		}
	})
}

const roomHelp = `A producer that asks before it puts a shard does not run ahead of those who learn:
lfactor data ingest --follow with --ahead and --consumer grants it as many shards as the slowest
run needs for its generation and the next ones. The answer is how many are granted and not taken;
a producer subtracts what it has put and is still on its way: neither taken nor lost, as -o json counts
both. Lost are shards that were refused, or removed before they were taken, by their names.`

// dataRoom is lfactor data room.
func dataRoom() *cobra.Command {
	c := &cobra.Command{Use: "room FOLDER", Short: "Say how many shards a data set that grows has room for",
		Args: cobra.ExactArgs(1), Long: roomHelp}
	wait := c.Flags().Duration("wait", 0, "wait so long for room, and fail if none comes; without it 0 is an answer")
	c.RunE = func(c *cobra.Command, args []string) error {
		ctx, cancel := context.WithTimeout(c.Context(), *wait)
		defer cancel()
		for {
			credits, err := jobs.ReadCredits(args[0])
			if err != nil {
				return err
			}
			if credits.Room() > 0 || *wait == 0 {
				return cli.Emit(c, credits, func(w io.Writer) { fmt.Fprintln(w, credits.Room()) })
			}
			if machine.Pause(ctx, lookEvery) != nil {
				if c.Context().Err() != nil {
					return c.Context().Err()
				}
				return fmt.Errorf("%s has no room: %d shards are granted and as many are taken; ask again when "+
					"the runs are further", args[0], credits.Granted)
			}
		}
	}
	return c
}
