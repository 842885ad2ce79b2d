package reward

import (
	"context"
	"crypto/rand"
	"errors"
	"regexp"
	"strings"
	"time"

	"github.com/lfactor/lfactor/configs"
)

// block is a piece of code between fences.
var block = regexp.MustCompile("(?s)```[A-Za-z0-9+]*[ \t]*\r?\n(.*?)```")

// code runs the answer's program with tests behind it, in a sandbox.
var _ = Register(Kind{Name: "code",
	Doc: "1 where the answer's last block of code, or all of it, runs in a sandbox with the " +
		"tests of reward.column behind it, within reward.timeout, else 0", Reads: []string{"command", "column",
		"memory"},
	New: func(c *configs.Reward) (Func, error) {
		begin, err := boxed(c)
		if err != nil {
			return nil, err
		}
		words, column, told := c.Command, c.Column, len(c.Command) == 0
		if told {
			words = []string{"python3", "-"}
		}
		return func(ctx context.Context, a *Answer) (float64, error) {
			tests, err := a.Column(column)
			if err != nil {
				return 0, err
			}
			program, end := a.Text, ""
			if all := block.FindAllStringSubmatch(a.Text, -1); len(all) > 0 {
				program = all[len(all)-1][1]
			}
			program += "\n" + tests + "\n"
			if told { // a program that ends itself before its tests does not know what they end with
				end = rand.Text()
				program += "print(\"\\n" + end + "\")\n"
			}
			ctx, cancel := shorter(ctx)
			defer cancel()
			out, err := runCommand(ctx, begin, words, []byte(program))
			switch own := (failed{}); {
			case errors.As(err, &own), ctx.Err() != nil, err == nil &&
				!strings.HasSuffix(strings.TrimSpace(out), end):
				return 0, nil
			case err != nil:
				return 0, err
			}
			return 1, nil
		}, nil
	}})

// shorter leaves a tenth of the time to say that a program did not end.
func shorter(ctx context.Context) (context.Context, context.CancelFunc) {
	at, ok := ctx.Deadline()
	if !ok {
		return context.WithCancel(ctx)
	}
	return context.WithTimeout(ctx, time.Until(at)*9/10)
}
