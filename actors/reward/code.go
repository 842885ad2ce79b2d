package reward

import (
	"context"
	_ "embed" // the driver
	"encoding/json"
	"errors"
	"os/exec"
	"regexp"
	"strings"
	"time"

	"github.com/lfactor/lfactor/configs"
)

// block is a piece of code between fences.
var block = regexp.MustCompile("(?s)```[A-Za-z0-9+]*[ \t]*\r?\n(.*?)```")

// cheated is the status with which the driver ends where an answer did what honest ones do not: it ended its process or
// itself, had an object equal what it does not, or reached for what is the tests'.
const cheated = 3

// driver runs an answer and its tests in Python.
//
//go:embed driver.py
var driver string

// code runs the answer's program in a sandbox, and its tests in another process there, to which values go: driver.py.
// With reward.command both are one program's text, and the exit status is all that is known.
var _ = Register(Kind{Name: "code",
	Doc: "1 where the answer's last block of code, or all of it, runs in a sandbox with the " +
		"tests of reward.column behind it, within reward.timeout, else 0",
	Reads: []string{"command", "column", "memory"},
	Gold: func(text string) error {
		if strings.TrimSpace(text) == "" {
			return errors.New("it has no tests, and any answer would pass")
		}
		return nil
	},
	New: func(c *configs.Reward) (Func, error) {
		begin, err := boxed(c, len(c.Command) > 0)
		if err != nil {
			return nil, err
		}
		column := c.Column
		return func(ctx context.Context, a *Answer) (float64, error) {
			tests, err := a.Column(column)
			if err != nil {
				return 0, err
			}
			answer := a.Text
			if all := block.FindAllStringSubmatch(a.Text, -1); len(all) > 0 {
				answer = all[len(all)-1][1]
			}
			words, in, err := program(c, answer, tests)
			if err != nil {
				return 0, err
			}
			ctx, cancel := shorter(ctx)
			defer cancel()
			_, err = runCommand(ctx, begin, words, in)
			switch own := (failed{}); {
			case errors.As(err, &own), ctx.Err() != nil:
				var exit *exec.ExitError
				a.Suspect = len(c.Command) == 0 && errors.As(err, &exit) && exit.ExitCode() == cheated
				return 0, nil
			case err != nil:
				return 0, err
			}
			return 1, nil
		}, nil
	},
	Aid: "run it by hand with the answer {} at its input",
	Try: func(ctx context.Context, run *configs.Config) error {
		c := &run.Run.Reward
		begin, err := boxed(c, len(c.Command) > 0)
		if err != nil {
			return err
		}
		words, in, err := program(c, "", "")
		if err != nil {
			return err
		}
		return begins(ctx, begin, words, in)
	}})

// program is what runs an answer with its tests, and what it reads.
func program(c *configs.Reward, answer, tests string) (words []string, in []byte, err error) {
	if len(c.Command) > 0 {
		return c.Command, []byte(answer + "\n" + tests + "\n"), nil
	}
	in, err = json.Marshal(struct {
		Answer string `json:"answer"`
		Tests  string `json:"tests"`
	}{answer, tests})
	return []string{"python3", "-c", driver}, in, err
}

// shorter leaves a tenth of the time, or half a second of a second and more, to end a program and say that
// it did not end by itself.
func shorter(ctx context.Context) (context.Context, context.CancelFunc) {
	at, ok := ctx.Deadline()
	if !ok {
		return context.WithCancel(ctx)
	}
	left := time.Until(at)
	return context.WithTimeout(ctx, left-max(left/10, min(left/2, time.Second/2)))
}
