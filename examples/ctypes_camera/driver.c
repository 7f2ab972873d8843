/* What a camera's maker ships: frames in a few buffers, which go back to the driver. It knows nothing of Python. */

#include <stdint.h>
#include <string.h>

enum { WIDTH = 64, HEIGHT = 48, BUFFERS = 3 };

static _Alignas(64) uint8_t buffers[BUFFERS][HEIGHT][WIDTH];       /* to a cache line, which is what JAX wants too */
static uint8_t background[HEIGHT][WIDTH];
static int lent[BUFFERS], frames;

/* The next frame, or NULL if every buffer is lent. */
uint8_t *camera_next(void) {
    for (int index = 0; index < BUFFERS; index++)
        if (!lent[index]) {
            lent[index] = 1;
            frames++;
            for (int row = 0; row < HEIGHT; row++)
                for (int column = 0; column < WIDTH; column++)
                    buffers[index][row][column] = (uint8_t) (frames + row + background[row][column]);
            return &buffers[index][0][0];
        }
    return NULL;
}

void camera_done(const uint8_t *frame) {
    lent[(frame - &buffers[0][0][0]) / (WIDTH * HEIGHT)] = 0;
}

int camera_lent(void) {
    int count = 0;
    for (int index = 0; index < BUFFERS; index++)
        count += lent[index];
    return count;
}

void camera_set_background(const uint8_t *image) {
    memcpy(background, image, sizeof background);
}
