package decide

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"
	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/actors/cluster/control"
)

// inputs are those that a script can name, by their names.
var inputs = map[string]Input{"begin": Begin{}, "dialed": Dialed{}, "heard": Heard{}, "gone": Gone{},
	"unsent": Unsent{}, "elapsed": Elapsed{}, "revived": Revived{}, "started": Started{}, "said": Said{}, "ready": Ready{},
	"wrote": Wrote{}, "silent": Silent{}, "exited": Exited{}, "found": Found{}, "leave": Leave{}}

// TestScripts runs the texts of testdata: what happens stands above the line, what an agent does of it
// below. A line is the name of an input and its fields as JSON; "agent" with options begins a new one.
func TestScripts(t *testing.T) {
	datadriven.Walk(t, "testdata", func(t *testing.T, path string) {
		var a *Agent
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			var out strings.Builder
			for line := range strings.Lines(d.Input) {
				word, fields, _ := strings.Cut(strings.TrimSpace(line), " ")
				if fields == "" {
					fields = "{}"
				}
				if word == "agent" {
					var o Options
					require.NoError(t, json.Unmarshal([]byte(fields), &o))
					a = New(o)
					continue
				}
				require.Contains(t, inputs, word)
				in := reflect.New(reflect.TypeOf(inputs[word]))
				require.NoError(t, json.Unmarshal([]byte(fields), in.Interface()), line)
				for _, e := range a.Step(in.Elem().Interface().(Input)) {
					show(t, &out, e)
				}
			}
			return out.String()
		})
	})
}

func show(t *testing.T, out *strings.Builder, e Effect) {
	text, err := json.Marshal(e)
	require.NoError(t, err)
	fmt.Fprintf(out, "%s %s\n", strings.ToLower(strings.TrimPrefix(fmt.Sprintf("%T", e), "decide.")), text)
}

// TestLate: what waits for a head is bounded, and what did not fit is counted.
func TestLate(t *testing.T) {
	a := New(Options{Heads: []string{"a"}})
	for range keepLate + 3 {
		require.Empty(t, a.Step(Found{control.Message{Kind: control.Probed}}))
	}
	require.Len(t, a.late, keepLate)
	require.Equal(t, 3, a.lost)
	conn := a.Step(Begin{})[0].(Dial).Conn
	require.Len(t, a.Step(Heard{conn, control.Message{Kind: control.Welcome}}), keepLate+2)
	require.Empty(t, a.late)
}
