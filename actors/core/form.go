package core

import (
	"fmt"
	"reflect"
	"strings"

	"github.com/lfactor/lfactor/actors"
)

// recorded are the records that messages and jobs carry as numbers by their places (values.go, lists.go).
var recorded = []any{Opening{}, Usage{}, Verdict{}, Filed{}, Summary{}, Slowness{}, Copying{}, Return{}, said{},
	kept{}, copied{}, LossScale{}, holding{}, remembered{}, Load{}, Finding{}, Placed{}, ExpertNorms{}, Laid{}}

// Form says how this build writes messages as numbers: the kinds in order, and the fields of each record in
// order with their types. Processes of a run have to have one form: numbers are told apart by their places
// alone, so that one field more would shift all behind it.
func Form() string {
	var b strings.Builder
	for k := range actors.Kinds {
		fmt.Fprintf(&b, "%s ", actors.Kind(k).Name())
	}
	for _, x := range recorded {
		t := reflect.TypeOf(x)
		fmt.Fprintf(&b, "\n%s", t.Name())
		for i := range t.NumField() {
			fmt.Fprintf(&b, " %s:%v", t.Field(i).Name, t.Field(i).Type)
		}
	}
	return b.String()
}
