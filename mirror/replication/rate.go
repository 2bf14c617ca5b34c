package replication

import "time"

// rate is the speed over the last rateWindow, from counters sampled once a rateStep. It belongs to one lock.
type rate struct {
	samples [rateWindow / rateStep]rateSample
}

type rateSample struct {
	step  int64 // number of the step since the epoch
	count int64
}

const (
	rateStep   = time.Second
	rateWindow = 10 * time.Second
)

func (r *rate) add(n int64, at time.Time) {
	step := at.UnixNano() / int64(rateStep)
	s := &r.samples[step%int64(len(r.samples))]
	if s.step != step {
		*s = rateSample{step: step}
	}
	s.count += n
}

// perSecond leaves out the present step, which is not over.
func (r *rate) perSecond(at time.Time) float64 {
	step := at.UnixNano() / int64(rateStep)
	var sum int64
	for _, s := range r.samples {
		if s.step < step && s.step > step-int64(len(r.samples)) {
			sum += s.count
		}
	}
	return float64(sum) / (rateWindow - rateStep).Seconds()
}
