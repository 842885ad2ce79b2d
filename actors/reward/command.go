package reward

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"strconv"
	"strings"
	"time"

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
	"input: a JSON object {prompt, answer, record}", Reads: []string{"command"},
	New: func(c *configs.Reward) (Func, error) {
		if len(c.Command) == 0 {
			return nil, errors.New("reward.command is not given")
		}
		words := c.Command
		return func(ctx context.Context, a *Answer) (float64, error) { return runCommand(ctx, words, a) },
			nil
	}})

func runCommand(ctx context.Context, words []string, a *Answer) (float64, error) {
	in, err := json.Marshal(asked{a.Prompt, a.Text, a.Record})
	if err != nil {
		return 0, err
	}
	c := exec.CommandContext(ctx, words[0], words[1:]...)
	c.Stdin, c.WaitDelay = bytes.NewReader(in), time.Second
	out, errs := &limited{most: outputMost}, &limited{most: 1024}
	c.Stdout, c.Stderr = out, errs
	if err := c.Run(); err != nil {
		return 0, fmt.Errorf("%s: %w: %s", words[0], err, strings.TrimSpace(errs.String()))
	}
	return parsed(words[0], out.String())
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
