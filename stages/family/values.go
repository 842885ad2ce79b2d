package family

import (
	"encoding/json"
	"fmt"
	"strconv"
)

// JSONOf is a value of ours as JSON.
func JSONOf(v any) string {
	text, err := json.Marshal(v)
	if err != nil {
		panic(fmt.Sprintf("family: %v cannot be JSON: %v", v, err))
	}
	return string(text)
}

// WholeOf is a default of ours that is a whole number.
func WholeOf(text string) int {
	n, err := strconv.Atoi(text)
	if err != nil {
		panic(fmt.Sprintf("family: default %q: %v", text, err))
	}
	return n
}
