package policies

import (
	"fmt"
	"math"
)

// rotation is a matrix that turns vectors, by rows.
type rotation [3][3]float64

// transposed is the inverse of a rotation.
func (r rotation) transposed() (out rotation) {
	for i := range 3 {
		for j := range 3 {
			out[j][i] = r[i][j]
		}
	}
	return out
}

// times is the rotation by o and then by r.
func (r rotation) times(o rotation) (out rotation) {
	for i := range 3 {
		for j := range 3 {
			for k := range 3 {
				out[i][j] += r[i][k] * o[k][j]
			}
		}
	}
	return out
}

// rotationOf reads numbers of a form. What is no rotation to the last bit is made the nearest one that its form gives:
// a quaternion is brought to length 1, and of six numbers or a matrix the second column is set upright on the first
// (arXiv:1812.07035). Numbers of which no rotation follows, as a quaternion of zeros, are an error.
func rotationOf(form string, v []float64) (r rotation, err error) {
	switch form {
	case "6d":
		return upright([3]float64(v[:3]), [3]float64(v[3:6]))
	case "matrix":
		return upright([3]float64{v[0], v[3], v[6]}, [3]float64{v[1], v[4], v[7]})
	case "quaternion":
		return turned([4]float64(v[:4]))
	case "axis_angle":
		angle := math.Sqrt(v[0]*v[0] + v[1]*v[1] + v[2]*v[2])
		by := 0.5 // of the sine of half the angle to the angle, where that is small
		if angle > 1e-12 {
			by = math.Sin(angle/2) / angle
		}
		return turned([4]float64{v[0] * by, v[1] * by, v[2] * by, math.Cos(angle / 2)})
	}
	x, y, z := about(0, v[0]), about(1, v[1]), about(2, v[2])
	return z.times(y).times(x), nil
}

// about is the rotation by an angle about an axis of the frame.
func about(axis int, angle float64) (r rotation) {
	s, c := math.Sincos(angle)
	i, j := (axis+1)%3, (axis+2)%3
	r[axis][axis], r[i][i], r[j][j], r[j][i], r[i][j] = 1, c, c, s, -s
	return r
}

// upright is the rotation whose first column points as a does, and whose second lies in the plane of a and b.
func upright(a, b [3]float64) (r rotation, err error) {
	dot := func(x, y [3]float64) float64 { return x[0]*y[0] + x[1]*y[1] + x[2]*y[2] }
	unit := func(x [3]float64) ([3]float64, error) {
		n := math.Sqrt(dot(x, x))
		if !(n > 1e-9) || math.IsInf(n, 0) {
			return x, fmt.Errorf("its columns %v and %v give no rotation", a, b)
		}
		return [3]float64{x[0] / n, x[1] / n, x[2] / n}, nil
	}
	if a, err = unit(a); err != nil {
		return r, err
	}
	along := dot(a, b)
	second, err := unit([3]float64{b[0] - along*a[0], b[1] - along*a[1], b[2] - along*a[2]})
	if err != nil {
		return r, err
	}
	third := [3]float64{a[1]*second[2] - a[2]*second[1], a[2]*second[0] - a[0]*second[2],
		a[0]*second[1] - a[1]*second[0]}
	for i := range 3 {
		r[i] = [3]float64{a[i], second[i], third[i]}
	}
	return r, nil
}

// turned is the rotation of a quaternion x, y, z, w.
func turned(q [4]float64) (r rotation, err error) {
	n := math.Sqrt(q[0]*q[0] + q[1]*q[1] + q[2]*q[2] + q[3]*q[3])
	if !(n > 1e-9) || math.IsInf(n, 0) {
		return r, fmt.Errorf("the quaternion %v gives no rotation", q)
	}
	x, y, z, w := q[0]/n, q[1]/n, q[2]/n, q[3]/n
	return rotation{{1 - 2*(y*y+z*z), 2 * (x*y - z*w), 2 * (x*z + y*w)},
		{2 * (x*y + z*w), 1 - 2*(x*x+z*z), 2 * (y*z - x*w)},
		{2 * (x*z - y*w), 2 * (y*z + x*w), 1 - 2*(x*x+y*y)}}, nil
}

// quaternion is a rotation's x, y, z, w with w not below 0.
func (r rotation) quaternion() (q [4]float64) {
	trace, at := r[0][0]+r[1][1]+r[2][2], 3
	largest := trace
	for i := range 3 {
		if r[i][i] > largest {
			largest, at = r[i][i], i
		}
	}
	if at == 3 {
		q = [4]float64{r[2][1] - r[1][2], r[0][2] - r[2][0], r[1][0] - r[0][1], 1 + trace}
	} else {
		i, j, k := at, (at+1)%3, (at+2)%3
		q[i], q[j], q[k], q[3] = 1-trace+2*r[i][i], r[j][i]+r[i][j], r[k][i]+r[i][k], r[k][j]-r[j][k]
	}
	n := math.Sqrt(q[0]*q[0] + q[1]*q[1] + q[2]*q[2] + q[3]*q[3])
	if q[3] < 0 {
		n = -n
	}
	for i := range q {
		q[i] /= n
	}
	return q
}

// in is a rotation's numbers in a form.
func (r rotation) in(form string) []float64 {
	switch form {
	case "6d":
		return []float64{r[0][0], r[1][0], r[2][0], r[0][1], r[1][1], r[2][1]}
	case "matrix":
		return []float64{r[0][0], r[0][1], r[0][2], r[1][0], r[1][1], r[1][2], r[2][0], r[2][1], r[2][2]}
	case "quaternion":
		q := r.quaternion()
		return q[:]
	case "axis_angle":
		q := r.quaternion()
		s := math.Sqrt(q[0]*q[0] + q[1]*q[1] + q[2]*q[2])
		by := 2.0 // of an angle to the sine of its half, where that is small
		if s > 1e-12 {
			by = 2 * math.Atan2(s, q[3]) / s
		}
		return []float64{q[0] * by, q[1] * by, q[2] * by}
	}
	flat := math.Hypot(r[0][0], r[1][0])
	if flat < 1e-9 { // the first and the third axis are one: the third angle is 0
		return []float64{math.Atan2(-r[1][2], r[1][1]), math.Atan2(-r[2][0], flat), 0}
	}
	return []float64{math.Atan2(r[2][1], r[2][2]), math.Atan2(-r[2][0], flat), math.Atan2(r[1][0], r[0][0])}
}
