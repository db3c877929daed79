/* From the two last screens of a step to the frame that the agent sees, compiled.

   What is computed, and why in this way, is told in screens.py, whose NumPy gives the same numbers
   where this is not built. */

#define PY_SSIZE_T_CLEAN
#define Py_LIMITED_API 0x030B0000
#include <Python.h>
#include <math.h>
#include <stdint.h>
#include <string.h>

enum { WIDTH = 160, MOST_HEIGHT = 256, SIZE = 84, COLOURS = 256 };

/* A row or column of pixels, and the 84 places that it shrinks to. A place is `span` units wide,
   a pixel `grain`. */
typedef struct {
    int pixels, span, grain;
} Axis;

static Axis axis(int pixels)
{
    int common = pixels, rest = SIZE;
    while (rest) {
        int next = common % rest;
        common = rest;
        rest = next;
    }
    return (Axis){pixels, pixels / common, SIZE / common};
}

static int first_pixel(Axis axis, int place)
{
    return place * axis.span / axis.grain;
}

/* The units of a pixel that lie in a place; 0 from the first pixel after it on. */
static int units(Axis axis, int place, int pixel)
{
    int begin = place * axis.span, end = begin + axis.span;
    int left = pixel * axis.grain, right = left + axis.grain;
    int shared = (end < right ? end : right) - (begin > left ? begin : left);
    return shared > 0 && pixel < axis.pixels ? shared : 0;
}

/* The same as a part of the place, rounded as OpenCV rounds it. */
static float weight(Axis axis, int place, int pixel)
{
    double scale = (double)axis.pixels / SIZE, begin = place * scale, end = begin + scale;
    double covered = fmin(end, pixel + 1.0) - fmax(begin, pixel);
    return (float)(covered / fmin(scale, axis.pixels - begin));
}

/* Rows of a screen that a whole number of the frame's rows is made of. */
typedef struct {
    int first_row, rows;
    uint8_t brightest[MOST_HEIGHT * WIDTH];
} Band;

/* The greater grey of two screens, which mostly agree: eight pixels are compared at a time. */
static void fill(Band *band, const uint8_t *one, const uint8_t *other, const uint8_t *grey)
{
    uint8_t *brightest = band->brightest;
    for (int i = 0; i < band->rows * WIDTH; i++)
        brightest[i] = grey[one[i]];
    for (int at = 0; at < band->rows * WIDTH; at += 8)
        for (int i = at; i < at + 8 && memcmp(one + at, other + at, 8); i++)
            if (grey[other[i]] > brightest[i])
                brightest[i] = grey[other[i]];
}

static const uint8_t *pixels(const Band *band, int y)
{
    return band->brightest + (y - band->first_row) * WIDTH;
}

/* A pixel of the frame in OpenCV's precision and order: along rows, then down. */
static uint8_t like_opencv(const Band *band, Axis down, Axis across, int row, int column)
{
    float total = 0;
    for (int y = first_pixel(down, row); units(down, row, y); y++) {
        float sum = 0;
        for (int x = first_pixel(across, column); units(across, column, x); x++)
            sum += (float)pixels(band, y)[x] * weight(across, column, x);
        total += sum * weight(down, row, y);
    }
    return (uint8_t)lrintf(total);
}

/* For each column of a frame, the first of the three columns that it is made of, and how much of
   each. */
typedef struct {
    int left[SIZE], units[SIZE][3];
} Columns;

static Columns columns_of(Axis across)
{
    Columns columns;
    for (int place = 0; place < SIZE; place++) {
        columns.left[place] = first_pixel(across, place);
        for (int k = 0; k < 3; k++)
            columns.units[place][k] = units(across, place, columns.left[place] + k);
    }
    return columns;
}

/* A row of the frame. Sums are whole numbers, and so exact. */
static void shrink(const Band *band, Axis down, Axis across, const Columns *columns, int row,
                   uint8_t *frame_row)
{
    uint16_t sums[WIDTH + 2] = {0};
    for (int y = first_pixel(down, row); units(down, row, y); y++) {
        uint16_t times = (uint16_t)units(down, row, y);
        const uint8_t *from = pixels(band, y);
        for (int x = 0; x < WIDTH; x++)
            sums[x] += times * from[x];
    }
    int total[SIZE];
    for (int column = 0; column < SIZE; column++) {
        const uint16_t *sum = sums + columns->left[column];
        const int *times = columns->units[column];
        total[column] = sum[0] * times[0] + sum[1] * times[1] + sum[2] * times[2];
    }
    float rest[SIZE];
    int halves = 0;
    for (int column = 0; column < SIZE; column++) {
        float average = (float)total[column] / (float)(down.span * across.span);
        int below = (int)average;
        rest[column] = average - (float)below;
        frame_row[column] = (uint8_t)(below + (rest[column] > 0.5f));
        halves += rest[column] == 0.5f;
    }
    for (int column = 0; halves && column < SIZE; column++)
        if (rest[column] == 0.5f)
            frame_row[column] = like_opencv(band, down, across, row, column);
}

/* Brings a frame up to date with its screens, in the bands that are not as they were. */
static void update(const uint8_t *one, const uint8_t *other, const uint8_t *grey, int height,
                   uint8_t *seen_one, uint8_t *seen_other, uint8_t *frame)
{
    Axis down = axis(height), across = axis(WIDTH);
    Columns columns = columns_of(across);
    size_t size = down.span * WIDTH;
    Band band;
    band.first_row = 0;
    band.rows = down.span;
    for (int row = 0; row < SIZE; row += down.grain, band.first_row += down.span) {
        size_t at = band.first_row * WIDTH;
        if (!memcmp(one + at, seen_one + at, size) && !memcmp(other + at, seen_other + at, size))
            continue;
        memcpy(seen_one + at, one + at, size);
        memcpy(seen_other + at, other + at, size);
        fill(&band, one + at, other + at, grey);
        for (int k = row; k < row + down.grain; k++)
            shrink(&band, down, across, &columns, k, frame + k * SIZE);
    }
}

static PyObject *update_frames(PyObject *module, PyObject *arguments)
{
    Py_buffer one, other, grey, seen, frames;
    if (!PyArg_ParseTuple(arguments, "y*y*y*w*w*", &one, &other, &grey, &seen, &frames))
        return NULL;
    Py_ssize_t count = frames.len / (SIZE * SIZE);
    Py_ssize_t height = count ? one.len / (count * WIDTH) : 0;
    int fits = frames.len == count * SIZE * SIZE && one.len == count * height * WIDTH &&
               other.len == one.len && seen.len == 2 * one.len && grey.len == COLOURS &&
               height >= SIZE && height <= MOST_HEIGHT;
    for (Py_ssize_t n = 0; fits && n < count; n++) {
        Py_ssize_t at = n * height * WIDTH;
        uint8_t *seen_one = (uint8_t *)seen.buf + at;
        update((uint8_t *)one.buf + at, (uint8_t *)other.buf + at, grey.buf, (int)height, seen_one,
               seen_one + one.len, (uint8_t *)frames.buf + n * SIZE * SIZE);
    }
    PyBuffer_Release(&one);
    PyBuffer_Release(&other);
    PyBuffer_Release(&grey);
    PyBuffer_Release(&seen);
    PyBuffer_Release(&frames);
    if (!fits) {
        PyErr_SetString(PyExc_ValueError,
                        "expected screens [n, H, 160] twice, with H from 84 to 256, greys [256], "
                        "screens that were seen [2, n, H, 160], and frames [n, 84, 84]");
        return NULL;
    }
    Py_RETURN_NONE;
}

static PyMethodDef methods[] = {
    {"update_frames", update_frames, METH_VARARGS,
     "update_frames(one, other, grey, seen, frames)\n\n"
     "Brings frames [n, 84, 84] of the screens in `seen` [2, n, H, 160] up to date with other\n"
     "screens, [n, H, 160] each, which will have been seen then."},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef module = {
    .m_base = PyModuleDef_HEAD_INIT,
    .m_name = "_frames",
    .m_methods = methods,
};

PyMODINIT_FUNC PyInit__frames(void)
{
    return PyModuleDef_Init(&module);
}
