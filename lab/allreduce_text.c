#include <math.h>
#include <string.h>

#include "lab/allreduce.h"

#define WIDTH 80
#define MAX_LINES 8   /* per round without states */
#define MAX_ROUNDS 16 /* more are abbreviated */
#define N_SHOWN 3     /* if abbreviated: at each end */

static bool has_letters(const struct dt_lesson *lesson)
{
    return lesson->replay->size <= DT_LAB_MAX_LETTERS;
}

const char *dt_lab_rank(const struct dt_lesson *lesson, int rank, char *out)
{
    snprintf(out, DT_LAB_WORD, has_letters(lesson) ? "%c" : "%d",
             has_letters(lesson) ? 'A' + rank : rank);
    return out;
}

/* "ab": the ranks whose numbers are in this sum. */
static int letters_of(const struct dt_lesson *lesson, float value, char *out)
{
    int n = 0;
    for (int rank = 0; rank < lesson->replay->size; rank++) {
        if (((unsigned)value >> rank & 1) != 0) {
            out[n++] = (char)('a' + rank);
        }
    }
    out[n] = '\0';
    return n;
}

/* "0", "0..3", or nothing if there is only one piece. */
static void pieces_text(const struct dt_lesson *lesson, int begin, int end, char *out, size_t size)
{
    out[0] = '\0';
    if (lesson->replay->n_pieces > 1 && end > begin + 1) {
        snprintf(out, size, "%d..%d", begin, end - 1);
    } else if (lesson->replay->n_pieces > 1) {
        snprintf(out, size, "%d", begin);
    }
}

/* "ab0", "ab0..3", "15"; false: the value has no name. */
static bool value_text(const struct dt_lesson *lesson, float value, int begin, int end, char *out)
{
    if (lesson->numbers) {
        snprintf(out, DT_LAB_WORD, "%g", (double)value);
        return !isnan(value);
    }
    out[0] = '\0';
    if (isnan(value) || !has_letters(lesson)) {
        return false;
    }
    const int n = letters_of(lesson, value, out);
    pieces_text(lesson, begin, end, out + n, (size_t)(DT_LAB_WORD - n));
    return true;
}

const char *dt_lab_cell(const struct dt_lesson *lesson, int piece, float value, char *out)
{
    value_text(lesson, value, piece, piece + 1, out);
    return out;
}

const char *dt_lab_content(const struct dt_lesson *lesson, const struct dt_transfer *t, char *out)
{
    char pieces[40];
    if (t->begin == t->end) {
        snprintf(out, DT_LAB_WORD, "an empty piece");
    } else if (!value_text(lesson, t->value, t->begin, t->end, out)) {
        pieces_text(lesson, t->begin, t->end, pieces, sizeof pieces);
        snprintf(out, DT_LAB_WORD,
                 pieces[0] == '\0'       ? "its vector"
                 : t->end - t->begin > 1 ? "pieces %s"
                                         : "piece %s",
                 pieces);
    }
    return out;
}

const char *dt_lab_sentence(const struct dt_lesson *lesson, const struct dt_transfer *t, char *out)
{
    const char *rank = has_letters(lesson) ? "" : "rank ";
    char from[DT_LAB_WORD], to[DT_LAB_WORD], content[DT_LAB_WORD];
    dt_lab_rank(lesson, t->from, from);
    dt_lab_rank(lesson, t->to, to);
    dt_lab_content(lesson, t, content);
    if (t->from == t->to) {
        snprintf(out, DT_LAB_WORD, "%s%.8s adds its own %.32s", rank, from, content);
    } else {
        snprintf(out, DT_LAB_WORD, "%s%.8s sends %.26s to %s%.8s, who %s", rank, from, content,
                 rank, to, t->adds ? "adds it" : "replaces");
    }
    return out;
}

/* ---- the rounds */

/* Width of the sentences, and of a cell; cell 0: states do not fit. */
struct layout {
    int sentence, cell;
};

static int longest(int a, const char *text)
{
    const int n = (int)strlen(text);
    return n > a ? n : a;
}

static struct layout layout_of(const struct dt_lesson *lesson)
{
    const struct dt_replay *p = lesson->replay;
    struct layout l = {0, 0};
    char word[DT_LAB_WORD];
    for (int round = 0, n; round < p->n_rounds; round++) {
        const struct dt_transfer *t = dt_replay_transfers(p, round, &n);
        for (int i = 0; i < n; i++) {
            l.sentence = longest(l.sentence, dt_lab_sentence(lesson, &t[i], word));
        }
    }
    for (int i = 0; i < (p->n_rounds + 1) * p->size * p->n_pieces; i++) {
        l.cell = longest(l.cell, dt_lab_cell(lesson, i % p->n_pieces, p->states[i], word));
    }
    const bool fits =
        has_letters(lesson) && 2 + l.sentence + 4 + p->n_pieces * (l.cell + 1) <= WIDTH;
    l.cell = fits ? l.cell : 0;
    return l;
}

static void print_cells(FILE *out, const struct dt_lesson *lesson, const struct layout *l,
                        int n_rounds, int rank)
{
    char word[DT_LAB_WORD];
    const float *state = dt_replay_state(lesson->replay, n_rounds, rank);
    fprintf(out, "%s", dt_lab_rank(lesson, rank, word));
    for (int i = 0; i < lesson->replay->n_pieces; i++) {
        dt_lab_cell(lesson, i, state[i], word);
        fprintf(out, i + 1 < lesson->replay->n_pieces ? " %-*s" : " %.*s", l->cell, word);
    }
}

void dt_lab_print_state(FILE *out, const struct dt_lesson *lesson, int n_rounds)
{
    const struct layout l = layout_of(lesson);
    for (int rank = 0; l.cell > 0 && rank < lesson->replay->size; rank++) {
        fputs("  ", out);
        print_cells(out, lesson, &l, n_rounds, rank);
        fputc('\n', out);
    }
}

/* Prints sentences, and beside them every rank's vector after the round. */
static void print_with_states(FILE *out, const struct dt_lesson *lesson, const struct layout *l,
                              int round)
{
    int n;
    const struct dt_transfer *t = dt_replay_transfers(lesson->replay, round, &n);
    for (int i = 0; i < n || i < lesson->replay->size; i++) {
        char sentence[DT_LAB_WORD] = "";
        if (i < n) {
            dt_lab_sentence(lesson, &t[i], sentence);
        }
        if (i < lesson->replay->size) {
            fprintf(out, "  %-*s  ", l->sentence, sentence);
            print_cells(out, lesson, l, round + 1, i);
            fputc('\n', out);
        } else {
            fprintf(out, "  %s\n", sentence);
        }
    }
}

static void print_sentences(FILE *out, const struct dt_lesson *lesson, int round)
{
    int n;
    char sentence[DT_LAB_WORD];
    const struct dt_transfer *t = dt_replay_transfers(lesson->replay, round, &n);
    const int n_first = n > MAX_LINES ? N_SHOWN : n;
    for (int i = 0; i < n_first; i++) {
        fprintf(out, "  %s\n", dt_lab_sentence(lesson, &t[i], sentence));
    }
    if (n_first < n) {
        fprintf(out, "  ... and %d more\n", n - n_first);
    }
}

void dt_lab_print_rounds(FILE *out, const struct dt_lesson *lesson, int begin, int end)
{
    const struct layout l = layout_of(lesson);
    const bool all = end - begin <= MAX_ROUNDS;
    for (int round = begin; round < end; round++) {
        if (!all && round == begin + N_SHOWN) {
            fprintf(out, "\n... %d rounds more ...\n", end - begin - 2 * N_SHOWN);
            round = end - N_SHOWN;
        }
        fprintf(out, "\nround %d of %d\n", round + 1, lesson->replay->n_rounds);
        if (l.cell > 0) {
            print_with_states(out, lesson, &l, round);
        } else {
            print_sentences(out, lesson, round);
        }
    }
}
