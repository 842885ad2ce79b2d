package reward

import (
	"context"
	"errors"
	"strings"

	"github.com/lfactor/lfactor/configs"
	"github.com/lfactor/lfactor/stages/sample/grammar"
)

// ofSchema is 1 where the answer is JSON of a schema.
var _ = Register(Kind{Name: "schema",
	Doc: "1 where the answer is one JSON value of reward.schema, or without it of the " +
		"schema in reward.column, else 0", Reads: []string{"schema", "column"},
	Gold: func(text string) error { _, err := judged(text, ""); return err },
	New: func(c *configs.Reward) (Func, error) {
		column := c.Column
		if c.Schema == "" {
			return func(_ context.Context, a *Answer) (float64, error) {
				text, err := a.Column(column)
				if err != nil {
					return 0, err
				}
				return judged(text, a.Text)
			}, nil
		}
		if column != "" && column != "answer" {
			return nil, errors.New("reward.schema and reward.column both name a schema")
		}
		schema := c.Schema
		if _, err := judged(schema, ""); err != nil {
			return nil, err
		}
		return func(_ context.Context, a *Answer) (float64, error) { return judged(schema, a.Text) }, nil
	}})

// judged is 1 where a text is of a schema.
func judged(schema, text string) (float64, error) {
	v, err := grammar.NewValidator([]byte(schema))
	if err != nil {
		return 0, err
	}
	is, err := v.Text(strings.TrimSpace(text))
	if err != nil || !is {
		return 0, err
	}
	return 1, nil
}
