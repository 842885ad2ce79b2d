package reward

import (
	"context"
	"errors"
	"regexp"

	"github.com/lfactor/lfactor/configs"
)

// matches is 1 where a pattern matches the answer.
var _ = Register(Kind{Name: "regex", Doc: "1 where reward.pattern matches the answer, else 0",
	Reads: []string{"pattern"}, New: func(c *configs.Reward) (Func, error) {
		if c.Pattern == "" {
			return nil, errors.New("reward.pattern is not given")
		}
		p, err := regexp.Compile(c.Pattern)
		if err != nil {
			return nil, err
		}
		return func(_ context.Context, a *Answer) (float64, error) {
			if p.MatchString(a.Text) {
				return 1, nil
			}
			return 0, nil
		}, nil
	}})
