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
	"time"

	"github.com/lfactor/lfactor/actors/sandbox"
	"github.com/lfactor/lfactor/configs"
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
var _ = Register(Kind{Name: "command", Doc: "what reward.command writes to its output, a number, for an " +
	"answer at its " +
	"input: a JSON object {prompt, answer, record}", Reads: []string{"command", "sandbox", "memory"},
	New: func(c *configs.Reward) (Func, error) {
		if len(c.Command) == 0 {
			return nil, errors.New("reward.command is not given")
		}
		begin := bare
		if c.Sandbox {
			var err error
			if begin, err = boxed(c); err != nil {
				return nil, err
			}
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
	}})

// beginning makes a program ready to run.
type beginning func(ctx context.Context, words []string) (*exec.Cmd, error)

// bare runs programs with the rights of the run.
func bare(ctx context.Context, words []string) (*exec.Cmd, error) {
	c := exec.CommandContext(ctx, words[0], words[1:]...)
	c.WaitDelay = time.Second
	return c, nil
}

// boxed runs programs in sandboxes, or says why there are none.
func boxed(c *configs.Reward) (beginning, error) {
	if !(c.Memory > 0) {
		return nil, errors.New("reward.memory leaves a program none")
	}
	if err := sandbox.Check(); err != nil {
		return nil, err
	}
	l := sandbox.Limits{Memory: int64(c.Memory * (1 << 30)), Seconds: 1 + int(c.Timeout)}
	return func(ctx context.Context, words []string) (*exec.Cmd, error) {
		return sandbox.Command(ctx, l, slices.Clone(words)...)
	}, nil
}

// failed is a program that ended with an error of its own.
type failed struct{ error }

// runCommand gives what a program wrote for its input.
func runCommand(ctx context.Context, begin beginning, words []string, in []byte) (string, error) {
	c, err := begin(ctx, words)
	if err != nil {
		return "", err
	}
	c.Stdin = bytes.NewReader(in)
	out, errs := &limited{most: outputMost}, &limited{most: 1024}
	c.Stdout, c.Stderr = out, errs
	if err := c.Run(); err != nil {
		told := fmt.Errorf("%s: %w: %s", words[0], err, strings.TrimSpace(errs.String()))
		var exit *exec.ExitError
		if errors.As(err, &exit) && ctx.Err() == nil && !strings.HasPrefix(errs.String(), "sandbox: ") {
			return out.String(), failed{told}
		}
		return "", told
	}
	return out.String(), nil
}

// parsed is a number that somebody wrote.
func parsed(who, text string) (float64, error) {
	v, err := strconv.ParseFloat(strings.TrimSpace(text), 64)
	if err != nil {
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
