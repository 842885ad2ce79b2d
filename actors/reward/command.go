package reward

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/lfactor/lfactor/actors/sandbox"
	"github.com/lfactor/lfactor/configs"
	"github.com/lfactor/lfactor/topology/machine"
)

// asked is what commands and services read: a JSON object.
type asked struct {
	Prompt string                     `json:"prompt"`
	Answer string                     `json:"answer"`
	Record map[string]json.RawMessage `json:"record"`
}

// outputMost bounds what a command or a service may say.
const outputMost = 64 << 10

// command runs a program for each answer, which reads a JSON object and writes a number.
var _ = Register(Kind{Name: "command", Doc: "what reward.command writes to its output, a number, for an answer " +
	"at its input: a JSON object {prompt, answer, record}", Reads: []string{"command", "sandbox", "memory"},
	New: func(c *configs.Reward) (Func, error) {
		if len(c.Command) == 0 {
			return nil, errors.New("reward.command is not given")
		}
		begin, err := beginner(c)
		if err != nil {
			return nil, err
		}
		words := c.Command
		return func(ctx context.Context, a *Answer) (float64, error) {
			in, err := json.Marshal(asked{a.Prompt, a.Text, a.Record})
			if err != nil {
				return 0, err
			}
			out, err := runCommand(ctx, begin, words, in)
			if err != nil {
				return 0, err
			}
			return parsed(words[0], out)
		}, nil
	}, Aid: "run it by hand with the answer {} at its input", Try: func(ctx context.Context,
		run *configs.Config) error {
		c := &run.Run.Reward
		begin, err := beginner(c)
		if err != nil {
			return err
		}
		in, err := json.Marshal(asked{Record: map[string]json.RawMessage{}})
		if err != nil {
			return err
		}
		return begins(ctx, begin, c.Command, in)
	}})

// beginner is how a command's programs begin.
func beginner(c *configs.Reward) (beginning, error) {
	if c.Sandbox {
		return boxed(c, true)
	}
	const usual = 1 // GiB, the default of reward.memory
	if c.Memory != 0 && c.Memory != usual {
		return nil, errors.New("reward.memory bounds a command in a sandbox alone, and reward.sandbox is false: give " +
			"reward.sandbox: true, or remove reward.memory")
	}
	return bare, nil
}

// begins tries a program with an answer of nothing, which it may well refuse. It says why where it cannot
// run at all: it does not begin, or ends as programs do whose command line is wrong (2), or as shells say
// that a program cannot be run or is not there (126, 127).
func begins(ctx context.Context, begin beginning, words []string, in []byte) error {
	_, err := runCommand(ctx, begin, words, in)
	var exit *exec.ExitError
	switch {
	case err == nil, ctx.Err() != nil:
		return nil // what takes long is said of its answers
	case errors.As(err, &exit) && !slices.Contains([]int{2, 126, 127}, exit.ExitCode()):
		return nil
	}
	return fmt.Errorf("the command cannot run: %w", err)
}

// beginning makes a program ready to run, and gives what runs it.
type beginning func(ctx context.Context, words []string) (*exec.Cmd, func() error, error)

// bare runs programs with the rights of the run. They end with their context, with those that they began,
// and with this process.
func bare(ctx context.Context, words []string) (*exec.Cmd, func() error, error) {
	c := exec.CommandContext(ctx, words[0], words[1:]...)
	c.WaitDelay = time.Second
	c.Cancel = func() error { return syscall.Kill(-c.Process.Pid, syscall.SIGKILL) }
	return c, func() error {
		release, err := machine.StartGuarded(c)
		if err != nil {
			return err
		}
		defer release()
		return c.Wait()
	}, nil
}

// boxed runs programs in sandboxes, in the run's folder or in an empty one, or says why there are none.
func boxed(c *configs.Reward, here bool) (beginning, error) {
	if !(c.Memory > 0) {
		return nil, errors.New("reward.memory leaves a program none")
	}
	if err := sandbox.Check(); err != nil {
		return nil, err
	}
	l := sandbox.Limits{Memory: int64(c.Memory * (1 << 30)), Seconds: 1 + int(c.Timeout), Here: here}
	return func(ctx context.Context, words []string) (*exec.Cmd, func() error, error) {
		b, err := sandbox.Command(ctx, l, slices.Clone(words)...)
		if err != nil {
			return nil, nil, err
		}
		return b.Cmd, b.Run, nil
	}, nil
}

// failed is a program that ended with an error of its own.
type failed struct{ error }

// Unwrap gives the error.
func (f failed) Unwrap() error { return f.error }

// runCommand gives what a program wrote for its input.
func runCommand(ctx context.Context, begin beginning, words []string, in []byte) (string, error) {
	c, start, err := begin(ctx, words)
	if err != nil {
		return "", err
	}
	c.Stdin = bytes.NewReader(in)
	out, errs := &limited{most: outputMost}, &limited{most: 1024}
	c.Stdout, c.Stderr = out, errs
	if err := start(); err != nil {
		told := fmt.Errorf("%s: %w", words[0], err)
		if said := strings.TrimSpace(errs.String()); said != "" {
			told = fmt.Errorf("%w: %s", told, said)
		}
		var exit *exec.ExitError
		if errors.As(err, &exit) && ctx.Err() == nil {
			return out.String(), failed{told}
		}
		return "", told
	}
	return out.String(), nil
}

// parsed is a number that somebody wrote.
func parsed(who, text string) (float64, error) {
	text = strings.TrimSpace(text)
	v, err := strconv.ParseFloat(text, 64)
	if own := strings.ContainsAny(text, "_xX"); err != nil || own { // Go's own ways to write numbers
		return 0, fmt.Errorf("%s says %.80q, and no number", who, text)
	}
	return v, nil
}

// limited keeps the beginning of what is written.
type limited struct {
	bytes.Buffer
	most int
}

// Write implements io.Writer.
func (l *limited) Write(p []byte) (int, error) {
	l.Buffer.Write(p[:min(len(p), max(0, l.most-l.Len()))])
	return len(p), nil
}
