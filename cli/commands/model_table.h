/* The parts of a document that describe a model, and what it answers. */
#ifndef DT_CLI_COMMANDS_MODEL_TABLE_H
#define DT_CLI_COMMANDS_MODEL_TABLE_H

#include "model/block.h"
#include "view/document.h"

struct dt_learned;

/* A table of its blocks; returns the operations of a forward pass of one sample. */
double dt_model_table(struct dt_doc *doc, const struct dt_model *model);

/* How PyTorch writes convolutions with more padding behind than before. */
void dt_model_tell_uneven(struct dt_doc *doc, const struct dt_model *model);

/* The name of a class, or its number if `names` ("cat/dog") is NULL. Lives as long as `doc`. */
const char *dt_class_text(struct dt_doc *doc, const char *names, int class);
/* The confusion matrix, which `learned` must have, with the names of its classes. */
void dt_confusion_add(struct dt_doc *doc, const struct dt_learned *learned);

#endif
