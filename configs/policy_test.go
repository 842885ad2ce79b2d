package configs

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// TestPolicyActions: what is said of the numbers of actions is held together when it is read.
func TestPolicyActions(t *testing.T) {
	for text, want := range map[string]string{
		"rotations: [action 3 euler 6d]":                                               "",
		"rotations: [action 3 euler]":                                                  "names no rotation",
		"rotations: [hand 3 euler 6d]":                                                 "names no rotation",
		"rotations: [action -1 euler 6d]":                                              "is no place of a number",
		"rotations: [action 3 euler 7d]":                                               "is none of the forms 6d, axis_angle",
		"rotations: [action 3 euler 6d, action 5 quaternion 6d]":                       "number 5 of the action is in two rotations",
		"rotations: [action 3 euler 6d, state 5 quaternion 6d]":                        "",
		"absolute: [6]":                                                                "policy.actions is absolute",
		"actions: relative, absolute: [6]":                                             "",
		"actions: relative, absolute: [-1]":                                            "counted from 0",
		"actions: delta, absolute: [4], rotations: [action 3 euler 6d, state 0 6d 6d]": "which turns as a whole",
		"actions: sideways":                                                            "actions",
	} {
		_, err := Load(Request{Text: []byte("model: {name: pi/0.5}\ndata: {paths: [set]}\npolicy: {" + text + "}\n")})
		if want == "" {
			require.NoError(t, err, text)
			continue
		}
		require.ErrorContains(t, err, want, text)
	}
}
