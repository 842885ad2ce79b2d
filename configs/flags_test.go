package configs

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/configs/megatron"
)

// TestFlagsWithoutValue: each flag that stands for a value, given one: true says the same as nothing, false
// the other of two values, and all else is refused; whether the run file has the flag's value already or
// another. A flag that was given a value and set its own trained in bf16 after --bf16=false.
func TestFlagsWithoutValue(t *testing.T) {
	n, tries := 0, 0
	for _, k := range Keys() {
		for _, f := range k.Flags {
			if f.Value == "" {
				continue
			}
			n++
			for _, base := range []bool{false, true} {
				for _, given := range []string{"", "true", "1", "false", "0", "banana", "5"} {
					tryBare(t, k, f, given, base)
					tries++
				}
			}
		}
	}
	require.Greater(t, n, 10)
	t.Logf("%d flags, %d values over two bases", n, tries)
	for name := range megatron.IdleFlags {
		_, why := idleValue(t, name, "banana")
		require.Equal(t, switches.MatchString(name), why, name)
	}
}

// tryBare gives one flag one value, over a run file that has the flag's value, or does not name the key.
func tryBare(t *testing.T, k Key, f Flag, given string, base bool) {
	t.Helper()
	l := newLoader("run.yaml")
	if base {
		l.readArgs([]string{k.Name + "=" + f.Value})
	}
	arg := "--" + f.Name
	if given != "" {
		arg += "=" + given
	}
	before := len(l.errs)
	l.readArgs([]string{arg})
	what := fmt.Sprintf("%s over %v", arg, base)
	set := l.c.given[k.Name]
	switch yes, ok := truth(given); {
	case given == "" || ok && yes:
		require.Len(t, l.errs, before, what)
		require.Equal(t, f.Value, set[len(set)-1].node.Value, what)
	case ok && k.Type == "boolean":
		require.Len(t, l.errs, before, what)
		require.NotEqual(t, f.Value, set[len(set)-1].node.Value, what)
	default:
		require.Len(t, l.errs, before+1, what)
		require.ErrorContains(t, l.errs[before], "takes no value", what)
	}
}

// idleValue gives a flag that has no effect a value, and returns whether that was refused.
func idleValue(t *testing.T, name, value string) (text string, refused bool) {
	t.Helper()
	l := newLoader("run.yaml")
	l.readArgs([]string{"--" + name + "=" + value})
	for _, err := range l.errs {
		text += err.Error()
	}
	return text, len(l.errs) > 0
}
