package other

import (
	"os"
	"strconv"
	"strings"
)

func discards(m map[string]error) {
	_ = os.Remove("a")
	_ = os.Remove("b") // it may be gone
	// it may be gone as well
	_ = os.Remove("c")
	n, _ := strconv.Atoi("1")
	before, _, _ := strings.Cut("a=b", "=") // neither is an error
	after, _, _ := strings.Cut("a=b", "=")
	_, known := m["x"]
	_, _ = os.Getwd()
	_, _, _, _ = n, before, after, known
}
