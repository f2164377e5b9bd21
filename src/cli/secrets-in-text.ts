/** Whole keys on the command line are never shown in a message. */

const secretText = /\b(enl_(?:live|test|operator)_[0-9A-Za-z]{1,16})_[0-9A-Za-z]*/g

/** A text in which each key and token is shortened to its id. */
export const withoutSecrets = (text: string): string => text.replace(secretText, '$1_…')
