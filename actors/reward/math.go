package reward

import (
	"context"
	"math/big"
	"strings"

	"github.com/lfactor/lfactor/configs"
)

// equal is 1 where the answer's last number is the column's: what stands in the last \boxed{}, or behind the
// last ####, else the last number of the text. Numbers are compared as fractions, so that 0.5 is 1/2.
var _ = Register(Kind{Name: "math", Doc: "1 where the answer's number is that of a column, else 0: in " +
	"\\boxed{}, " +
	"behind ####, or the last one", Reads: []string{"column"}, New: func(c *configs.Reward) (Func, error) {
	column := c.Column
	return func(_ context.Context, a *Answer) (float64, error) {
		want, err := a.Column(column)
		if err != nil {
			return 0, err
		}
		x, y := number(a.Text), number(want)
		if x != nil && y != nil && x.Cmp(y) == 0 {
			return 1, nil
		}
		return 0, nil
	}, nil
}})

// number is the number that a text ends up with, nil for none.
func number(text string) *big.Rat {
	if i := strings.LastIndex(text, "\\boxed{"); i >= 0 {
		text, _, _ = strings.Cut(text[i+len("\\boxed{"):], "}")
	} else if i := strings.LastIndex(text, "####"); i >= 0 {
		text = text[i+len("####"):]
	}
	text = strings.NewReplacer(",", "", "$", "", "%", "", "\\", "").Replace(text)
	fields := strings.FieldsFunc(text, func(r rune) bool {
		return (r < '0' || r > '9') && r != '.' && r != '-' && r != '/'
	})
	for i := len(fields) - 1; i >= 0; i-- {
		f := strings.TrimRight(fields[i], ".-/")
		if len(f) > 64 {
			continue // no number that anybody asked for
		}
		if x, ok := new(big.Rat).SetString(f); ok {
			return x
		}
	}
	return nil
}
