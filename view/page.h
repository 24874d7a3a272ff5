/* Style and script of every page (page.css, page.js), which the build embeds. */
#ifndef DT_VIEW_PAGE_H
#define DT_VIEW_PAGE_H

extern const char dt_view_css[], dt_view_js[];

/* In the head of every page; dt_view_made looks for it. */
#define DT_PAGE_GENERATOR "<meta name=\"generator\" content=\"dtrain\">"

#endif
