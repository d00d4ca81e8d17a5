package envs

import (
	"image"

	"github.com/azserve/azserve/envs/canvas"
)

// The picture of rules without a [Painter] shows their text.
const (
	textColumns = 84
	textRows    = 30
	textMargin  = 6
)

func (a *arena[S]) FrameSize() (width, height int) {
	if a.k.paint != nil {
		return a.k.paint.FrameSize()
	}
	return textColumns*canvas.LetterWidth + 2*textMargin, textRows*canvas.LetterHeight + 2*textMargin
}

func (a *arena[S]) Paint(slots []int32, frames []uint8) {
	slabs, row := *a.slabs.Load(), 0
	defer blame(&row)
	w, h := a.FrameSize()
	frame := image.NewRGBA(image.Rect(0, 0, w, h))
	for i, slot := range slots {
		row = i
		canvas.Fill(frame, canvas.White)
		if a.k.paint != nil {
			a.k.paint.Paint(a.at(slabs, slot), frame)
		} else {
			canvas.Text(frame, textMargin, textMargin, a.Text(slot), canvas.Black)
		}
		canvas.RGB(frame, frames[i*w*h*3:(i+1)*w*h*3])
	}
}
