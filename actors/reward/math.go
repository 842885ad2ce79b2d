package reward

import (
	"context"
	"fmt"

	"github.com/lfactor/lfactor/actors/reward/maths"
	"github.com/lfactor/lfactor/configs"
)

// equal is 1 where the answer is the column's, read as LaTeX or as one types: numbers and expressions by
// their values, sets, tuples, intervals and relations as such, all else as texts.
var _ = Register(Kind{Name: "math",
	Doc: "1 where the answer is that of a column, else 0: what stands in \\boxed{}, " +
		"behind ####, or last; numbers and expressions are compared by their values", Reads: []string{"column"},
	Gold: func(text string) error {
		_, err := maths.Read(text)
		return err
	},
	New: func(c *configs.Reward) (Func, error) {
		column := c.Column
		return func(_ context.Context, a *Answer) (float64, error) {
			want, err := a.Column(column)
			if err != nil {
				return 0, err
			}
			gold, err := maths.Read(want)
			if err != nil {
				return 0, fmt.Errorf("column %s is no answer to compare with: %w", column, err)
			}
			if gold.Is(a.Text) {
				return 1, nil
			}
			return 0, nil
		}, nil
	}})
