package recordings

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestStatsOfNone: statistics with a NaN, as Python writes them, name the key and the cause.
func TestStatsOfNone(t *testing.T) {
	for text, want := range map[string]string{
		`{"action": {"mean": [0.1], "std": [NaN, 1]}}`:                        "in the value of action.std: NaN, which JSON",
		`{"a": {"min": [1], "max": [2]}, "b": {"mean": [0, -Infinity]}}`:      "in the value of b.mean: -Infinity, which JSON",
		`{"a": {"mean": [[[1]], [[2]]], "count": [3]}, "b.c": {"mean": NaN}}`: "in the value of b.c.mean: NaN",
		`{"a": {"mean": [1}}`: "in the value of a.mean",
	} {
		_, err := statsOf([]byte(text))
		require.ErrorContains(t, err, "meta/stats.json: ")
		require.ErrorContains(t, err, want)
	}
	_, err := statsOf([]byte(`[`))
	require.ErrorContains(t, err, "meta/stats.json: ")
}

// TestShapes: the height and width of a camera, in every order that LeRobot's versions write its axes.
func TestShapes(t *testing.T) {
	for text, want := range map[string][2]int{
		`{"shape": [64, 96, 3], "names": ["height", "width", "channels"]}`:  {64, 96},
		`{"shape": [3, 64, 96], "names": ["channels", "height", "width"]}`:  {64, 96},
		`{"shape": [3, 64, 96], "names": ["channel", "height", "width"]}`:   {64, 96},
		`{"shape": [64, 96, 3], "names": null}`:                             {64, 96},
		`{"shape": [3, 64, 96]}`:                                            {64, 96},
		`{"shape": [480, 640, 3], "names": ["height", "width", "channel"]}`: {480, 640},
		`{"shape": [6]}`: {}, `{}`: {},
	} {
		var l LeRobot
		require.NoError(t, json.Unmarshal([]byte(`{"features": {"top": `+text+`}}`), &l.info))
		require.Equal(t, want, l.Shape("top"), text)
	}
}
