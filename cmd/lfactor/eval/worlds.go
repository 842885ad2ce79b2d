package eval

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/lfactor/lfactor/actors/world"
	"github.com/lfactor/lfactor/cmd/lfactor/cli"
	"github.com/lfactor/lfactor/configs"
	"github.com/lfactor/lfactor/configs/exit"
	"github.com/lfactor/lfactor/dataset/format/recordings"
	"github.com/lfactor/lfactor/stages/policies"
	"github.com/lfactor/lfactor/stages/trained"
	"github.com/lfactor/lfactor/topology/machine"
)

// worldFlags are those of rollouts of policies, by what they are called.
var worldFlags = []string{"policy", "world", "episodes", "worlds", "seed", "executed", "most", "deadline", "tries",
	"robot", "record", "page"}

// bindWorlds declares them.
func bindWorlds(c *cobra.Command) {
	f := c.Flags()
	f.String("policy", "", "checkpoints or a folder of a policy, to act in --world")
	f.String("world", "", "command that is a world, its words between blanks; see docs/policies.md")
	f.Int("episodes", 100, "worlds: episodes")
	f.Int("worlds", 1, "worlds: commands at once")
	f.Uint64("seed", 0, "worlds: seed of the first episode; those behind it have the next ones")
	f.Int("executed", 0, "worlds: actions of a chunk that are carried out before the policy looks again (default: all)")
	f.Int("most", 1000, "worlds: steps of an episode at most")
	f.Duration("deadline", time.Minute, "worlds: time that a world may take to answer")
	f.Int("tries", 3, "worlds: worlds that an episode may lose before it is set aside")
	f.String("robot", "", "policies of several robots: data set of the one that acts, by the end of its path")
	f.String("record", "", "worlds: folder for recordings, as LeRobot's, of what the world's expert would have done; of a "+
		"world without one, of episodes that succeeded")
	f.String("page", "", "worlds: file for a page with 20 episodes frame by frame")
}

// asking is what the flags say.
type asking struct {
	of       map[string]string
	roll     world.Rolling
	deadline time.Duration
}

// readWorlds reads the flags; asked is whether one is there.
func readWorlds(file string, mine, rest []string) (a asking, asked bool, err error) {
	a.of = map[string]string{}
	for _, flag := range worldFlags {
		if v, ok := valueOf(mine, flag); ok {
			a.of[flag], asked = v, true
		}
	}
	if !asked {
		return a, false, nil
	}
	if a.of["policy"] == "" || len(strings.Fields(a.of["world"])) == 0 {
		return a, true, exit.Usagef("eval: rollouts want --policy PATH and --world COMMAND")
	}
	if file != "" || len(rest) > 0 {
		return a, true, exit.Usagef("eval: rollouts read no run file: leave %s out",
			strings.Join(append([]string{file}, rest...), " "))
	}
	number := func(flag string, usual, least int) int {
		v, ok := a.of[flag]
		if !ok {
			return usual
		}
		n, e := strconv.Atoi(v)
		if e != nil || n < least || n > 1_000_000 {
			err = errors.Join(err, exit.Usagef("eval: --%s %s: want a number from %d to 1000000", flag, v, least))
		}
		return n
	}
	a.roll = world.Rolling{Episodes: number("episodes", 100, 1), Worlds: number("worlds", 1, 1),
		Executed: number("executed", 0, 0), Most: number("most", 1000, 1), Tries: number("tries", 3, 1),
		Keep: a.of["record"] != "" || a.of["page"] != ""}
	if v, ok := a.of["seed"]; ok {
		n, e := strconv.ParseUint(v, 10, 32)
		if a.roll.Seed = n; e != nil {
			err = errors.Join(err, exit.Usagef("eval: --seed %s: want a number from 0 to 4294967295", v))
		}
	}
	if dir := a.of["record"]; dir != "" {
		if have, e := os.ReadDir(dir); e == nil && len(have) > 0 {
			err = errors.Join(err, exit.Usagef("eval: --record %s: the folder is not empty", dir))
		}
	}
	a.deadline = time.Minute
	if v, ok := a.of["deadline"]; ok {
		d, e := time.ParseDuration(v)
		if a.deadline = d; e != nil || d <= 0 {
			err = errors.Join(err, exit.Usagef("eval: --deadline %s: want a time above 0, as 30s", v))
		}
	}
	return a, true, err
}

// worlds has a policy act in a world that is a command.
func worlds(c *cobra.Command, file string, mine, rest []string, form string) (asked bool, err error) {
	a, asked, err := readWorlds(file, mine, rest)
	if !asked || err != nil {
		return asked, err
	}
	m, err := trained.Open(a.of["policy"], "")
	if err != nil {
		return true, err
	}
	defer m.Close()
	actor, err := policies.NewActor(m)
	if err != nil {
		return true, err
	}
	defer actor.Close()
	if name := a.of["robot"]; name != "" {
		if err := actor.As(name); err != nil {
			return true, err
		}
	}
	a.roll.Make = func(ctx context.Context) (world.World, error) {
		return world.Start(ctx, strings.Fields(a.of["world"]), a.deadline)
	}
	r, err := world.Roll(c.Context(), actor, a.roll)
	if c.Context().Err() != nil {
		return true, exit.With(errors.New("interrupted"), exit.Interrupted)
	}
	if err != nil {
		return true, err
	}
	if r.Counted == 0 {
		last := r.Episodes[len(r.Episodes)-1]
		return true, fmt.Errorf("%w; the last said: %s", world.ErrLost, last.Faults[len(last.Faults)-1].Why)
	}
	if err := a.keep(c, m.Cfg, r); err != nil {
		return true, err
	}
	return true, cli.EmitAs(cli.Out, form, r, func(w io.Writer) { tell(w, r) })
}

// keep writes what was asked to be kept.
func (a asking) keep(c *cobra.Command, cfg *configs.Config, r *world.Result) error {
	if name := a.of["page"]; name != "" {
		said := fmt.Sprintf("Success: %.1f %% of %d episodes.", 100*r.Rate, r.Counted)
		if err := world.Page(name, r.World, said, []world.Part{{Title: "Episodes",
			Episodes: r.Episodes[:min(20, len(r.Episodes))]}}); err != nil {
			return err
		}
	}
	dir := a.of["record"]
	if dir == "" {
		return nil
	}
	episodes, corrected, err := world.Corrected(r.Spec, r.Episodes)
	if err != nil {
		return fmt.Errorf("eval: --record %s: %w", dir, err)
	}
	set := r.Spec.Set(r.Episodes)
	if all := cfg.Run.Data.Paths; len(all) > 0 && machine.Exists(filepath.Join(all[0].Path, "meta", "stats.json")) {
		set.Like = all[0].Path // so that the policy reads both alike
	}
	if err := recordings.WriteRobot(dir, set, episodes); err != nil {
		return err
	}
	what := "what the policy did where it succeeded"
	if corrected {
		what = "what the world's expert would have done"
	}
	fmt.Fprintf(c.ErrOrStderr(), "recorded in %s: %d episodes, of %s\n", dir, len(episodes), what)
	return nil
}

// tell says how rollouts went.
func tell(w io.Writer, r *world.Result) {
	fmt.Fprintf(w, "%s: success %.1f %% of %d episodes (95 %%: %.1f to %.1f), reward %.4g and %.1f steps each\n", r.World,
		100*r.Rate, r.Counted, 100*r.Interval.Low, 100*r.Interval.High, r.Reward, r.Steps)
	if r.Unsteady {
		fmt.Fprintln(w, "  two resets from one seed showed different things: another evaluation may give another rate")
	}
	again := 0
	for _, e := range r.Episodes {
		if len(e.Faults) > 0 && !e.Lost {
			again++
		}
	}
	if again > 0 {
		fmt.Fprintf(w, "  %d episodes lost a world and were begun again\n", again)
	}
	for _, e := range r.Episodes {
		if e.Failure != "" && !e.Lost {
			fmt.Fprintf(w, "  no success: episode %d (seed %d), step %d: %s\n", e.Number, e.Seed, e.Steps, e.Failure)
		}
	}
	for _, e := range slices.Clip(r.Lost()) {
		f := e.Faults[len(e.Faults)-1]
		fmt.Fprintf(w, "  set aside: episode %d (seed %d) lost %d worlds, the last in step %d: %s\n", e.Number, e.Seed,
			len(e.Faults), f.Step, f.Why)
	}
}
