package reward

import (
	"context"
	"strings"

	"github.com/lfactor/lfactor/configs"
)

// exact is 1 where the answer is the column, white space around both left out.
var _ = Register(Kind{Name: "exact", Doc: "1 where the answer is the text of a column, else 0",
	Reads: []string{"column"}, New: func(c *configs.Reward) (Func, error) {
		column := c.Column
		return func(_ context.Context, a *Answer) (float64, error) {
			want, err := a.Column(column)
			if err != nil || strings.TrimSpace(a.Text) != strings.TrimSpace(want) {
				return 0, err
			}
			return 1, nil
		}, nil
	}})
